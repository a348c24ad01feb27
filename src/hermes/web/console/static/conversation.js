// `x` on two rows of the graph: the difference between their messages.
const graph = document.querySelector(".graph");
let picked = null;
function pick(row) {
  if (!row || !row.id) return;
  if (picked === row) { row.classList.remove("picked"); picked = null; return; }
  if (!picked) { picked = row; row.classList.add("picked"); return; }
  const sides = new URLSearchParams({ diff: picked.id + "," + row.id });
  if (graph.dataset.chat) sides.set("chat", graph.dataset.chat);
  location.assign("?" + sides);
}
document.addEventListener("keydown", event => {
  if (!graph || event.key !== "x" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  pick(graph.querySelector('tr[aria-selected="true"]') || graph.querySelector("tr:focus-within") || graph.querySelector("tr:hover"));
});
