// The Live page and the list of turns follow what happens: a stream says that something changed, and the page reads its own part again.
// Hidden tabs let the stream go: a browser has six connections to a server. Without the stream the part is read every few seconds.
"use strict";
(() => {
  const part = () => document.querySelector("[data-part]");
  if (!part()) return;
  const query = new URLSearchParams(location.search);
  if (query.has("before") || query.has("until")) return;  // a page of the past does not change
  const isLive = part().dataset.part === "live";
  const state = document.getElementById("live-state");
  const button = document.getElementById("show-new");
  const PAUSE_MS = 250, MAX_STREAK = 3, POLL_MS = isLive ? 2_000 : 5_000, NO_STREAM_POLL_MS = 2_000;
  let stream = null, last = 0, streak = 0, timer = 0, isReading = false, isDue = false, fresh = [];

  function say(text, isOn) {
    if (!state || state.textContent === text) return;
    state.textContent = text;
    state.classList.toggle("on", isOn);
  }

  // --- reading

  async function read() {
    if (isReading) { isDue = true; return; }
    isReading = true;
    streak = Date.now() - last < 1_500 ? Math.min(streak + 1, MAX_STREAK) : 0;  // at first at once, then once a second
    last = Date.now();
    try {
      const address = new URL(location.href);
      address.hash = "";
      address.searchParams.set("part", part().dataset.part);
      const answer = await fetch(address, { headers: { "X-Requested-With": "hermes" } });
      if (answer.status === 401) return location.reload();
      if (!answer.ok) return;
      const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-part]");
      if (found) isLive ? replace(part(), found) : merge(found);
    } catch { /* the server restarts: the next try will tell */ } finally {
      isReading = false;
      if (isDue) { isDue = false; soon(); }
    }
  }

  function soon() {
    if (document.hidden || timer) return;
    timer = setTimeout(() => { timer = 0; read(); }, Math.max(0, last + PAUSE_MS * (streak + 1) - Date.now()));
  }

  // A part that the reader's focus or selection is in keeps it: only what differs is replaced.
  function replace(old, found) {
    const children = [...found.children];
    for (const [index, child] of children.entries()) {
      const now = old.children[index];
      if (!now) old.append(child);
      else if (now.dataset.was !== child.outerHTML) {
        const was = child.outerHTML, focused = now.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
        child.dataset.was = was;
        now.replaceWith(child);
        if (focused) [...child.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
      }
    }
    while (old.children.length > children.length) old.lastElementChild.remove();
  }

  // --- the list: what is under way and known rows are renewed, new rows wait behind a button

  function merge(found) {
    const body = document.getElementById("rows"), rows = [...found.querySelectorAll("#rows > tr")];
    const open = document.getElementById("open-turns"), opened = found.querySelector("#open-turns");
    if (open && opened && !open.contains(document.activeElement)) open.replaceWith(opened);
    if (!body) {
      if (rows.length) part().replaceWith(found);  // the first row ever
      return;
    }
    const known = new Map([...body.children].map((row) => [row.dataset.id, row]));
    fresh = [];
    for (const row of rows) {
      const now = known.get(row.dataset.id);
      if (!now) fresh.push(row);
      else if (now.dataset.was !== row.outerHTML && !now.contains(document.activeElement)) {
        const was = row.outerHTML;
        row.dataset.was = was;
        if (now.hasAttribute("aria-selected")) row.setAttribute("aria-selected", "true");
        now.replaceWith(row);
      }
    }
    button.hidden = !fresh.length;
    button.textContent = fresh.length >= 50 ? "50+ new" : fresh.length + " new";
  }

  button?.addEventListener("click", () => {
    if (fresh.length >= 50) return location.reload();
    const body = document.getElementById("rows");
    for (const row of fresh.reverse()) { row.classList.add("fresh"); body.prepend(row); }
    fresh = [];
    button.hidden = true;
    body.querySelector("a")?.focus({ preventScroll: true });
  });

  // --- the stream

  function connect() {
    if (stream || document.hidden) return;
    stream = new EventSource("/console/events");
    // What changed before the stream was open is read now; on a page that has just come, a moment later.
    stream.onopen = () => { say("live", true); setTimeout(soon, last ? 0 : 1_000); };
    stream.addEventListener("changed", soon);
    stream.onerror = () => {
      say("every few seconds", false);
      if (stream.readyState === EventSource.CLOSED) { stream = null; setTimeout(connect, 5_000); }
    };
  }

  function follow() {
    if (!document.hidden) { connect(); return soon(); }
    stream?.close();
    stream = null;
    say("paused", false);
  }
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", () => stream?.close());
  addEventListener("pageshow", (event) => { if (event.persisted) { stream = null; follow(); } });
  setInterval(() => {
    const pause = stream?.readyState === EventSource.OPEN ? POLL_MS : NO_STREAM_POLL_MS;
    if (Date.now() - last >= pause) soon();
  }, 1_000);
  connect();
})();
