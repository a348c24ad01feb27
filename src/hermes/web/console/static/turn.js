// A turn that waits or runs: its sentence and its steps are read again until it has ended.
const EVERY_MS = 2000;

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!fresh.querySelector("[data-waiting]")) return location.reload();
  for (const id of ["why", "steps"]) document.getElementById(id).replaceWith(fresh.getElementById(id));
}

setInterval(refresh, EVERY_MS);
