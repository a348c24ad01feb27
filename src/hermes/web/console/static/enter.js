// The secret of a link is in the address's fragment, which no server or proxy sees. A click sends it, so that a preview of the link cannot.
const field = document.querySelector("#enter input[name=secret]");
if (location.hash.length > 1) {
  field.value = location.hash.slice(1);
  field.closest("label").hidden = true;
  history.replaceState(null, "", location.pathname);
}
