// Reads a part of the page again while something in it still runs. Without this script, the page has a link for it.
const part = document.querySelector("[data-poll]");
if (part) {
  let shown = part;
  const read = async () => {
    if (document.hidden) return window.setTimeout(read, 1000);
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (!response.ok) return;
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById(shown.id);
      if (!fresh) return;
      const hasFocus = shown.contains(document.activeElement);
      if (!hasFocus || !("poll" in fresh.dataset)) {
        if (!("poll" in fresh.dataset)) return location.reload();
        shown.replaceWith(fresh);
        shown = fresh;
        document.dispatchEvent(new Event("console:changed"));
      }
    } catch {
      // the server is away: look again
    }
    window.setTimeout(read, 1000);
  };
  window.setTimeout(read, 600);
}
