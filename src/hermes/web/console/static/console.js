// What every page does beyond reading: times in the reader's zone, the strip, keys, copying, open and closed details.
// Pages work without it. A part declares its own keys with data-key="x" on a link, button or field.
"use strict";
(() => {
  const memory = {
    get: (name) => { try { return localStorage.getItem("hermes." + name); } catch { return null; } },
    set: (name, value) => { try { localStorage.setItem("hermes." + name, value); } catch { /* a browser may keep nothing */ } },
  };
  const main = document.getElementById("main");

  // --- times. The server writes UTC.

  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
  const dayOfYear = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
  const ages = [[86400, "d"], [3600, "h"], [60, "min"]];

  function ageOf(at) {
    const seconds = (Date.now() - at) / 1000;
    const [size, unit] = ages.find(([size]) => Math.abs(seconds) >= 2 * size) ?? [1, "s"];
    const age = Math.round(Math.abs(seconds) / size) + " " + unit;
    return seconds < -1 ? "in " + age : age + " ago";
  }

  function showTime(element) {
    const at = new Date(element.dateTime);
    if (isNaN(at)) return;
    const now = new Date();
    element.dataset.utc ??= element.textContent.trim();
    if ("age" in element.dataset) element.textContent = ageOf(at);
    else if (at.toDateString() === now.toDateString()) element.textContent = clock.format(at);
    else element.textContent = (at.getFullYear() === now.getFullYear() ? day : dayOfYear).format(at) + " " + clock.format(at);
    element.title = element.dataset.utc + " UTC, " + ageOf(at);
  }

  function showTimes(root) {
    if (root.matches?.("time[datetime]")) showTime(root);
    root.querySelectorAll?.("time[datetime]").forEach(showTime);
  }

  document.addEventListener("pointerover", (event) => { if (event.target.matches?.("time[datetime]")) showTime(event.target); });
  setInterval(() => { if (!document.hidden) document.querySelectorAll("time[data-age]").forEach(showTime); }, 10_000);

  // --- copying: ids and commands

  const said = document.getElementById("said");
  let saidTimer = 0;
  function say(text) {
    if (!said) return;
    said.textContent = text;
    clearTimeout(saidTimer);
    saidTimer = setTimeout(() => { said.textContent = ""; }, 1600);
  }

  async function copy(element) {
    try {
      await navigator.clipboard.writeText(element.dataset.copy || element.textContent);
      say("Copied");
    } catch {  // no clipboard without HTTPS: select the text instead
      getSelection().selectAllChildren(element);
      say("Selected; copy it with the keyboard");
    }
  }

  function offerCopies(root) {
    const found = [...(root.querySelectorAll?.("[data-copy], .cli code") ?? [])];
    if (root.matches?.("[data-copy], .cli code")) found.push(root);
    for (const element of found) {
      if (element.closest("a, button, summary, [role=button]")) continue;
      element.dataset.copy ||= element.textContent;
      element.setAttribute("role", "button");
      element.tabIndex = 0;
      element.title ||= "Copy " + element.dataset.copy;
    }
  }

  // --- a table that is wider than the page is scrolled by keys too

  function labelTables(root) {
    for (const table of root.querySelectorAll?.(".table, pre") ?? []) {
      if (table.scrollWidth <= table.clientWidth || table.hasAttribute("tabindex")) continue;
      table.tabIndex = 0;
      table.setAttribute("role", "region");
      table.setAttribute("aria-label", table.querySelector("caption")?.textContent.trim() || document.querySelector("h1")?.textContent.trim() || "Table");
    }
  }

  // --- details stay as the reader left them

  function rememberDetails(root) {
    for (const details of root.querySelectorAll?.("details[data-remember]") ?? []) {
      const name = "open." + details.dataset.remember;
      const was = memory.get(name);
      if (was !== null) details.open = was === "1";
      details.addEventListener("toggle", () => memory.set(name, details.open ? "1" : "0"));
    }
  }

  function dress(root) {
    showTimes(root);
    offerCopies(root);
    rememberDetails(root);
  }
  dress(document);
  labelTables(document);
  addEventListener("resize", () => labelTables(document));
  if (main) new MutationObserver((changes) => {
    for (const change of changes) for (const node of change.addedNodes) if (node.nodeType === 1) dress(node);
  }).observe(main, { childList: true, subtree: true });

  // --- the strip: read again every 5 s while the reader looks

  const strip = document.getElementById("strip");
  let stripRead = 0;
  async function readStrip() {
    if (document.hidden || Date.now() - stripRead < 4_000) return;
    stripRead = Date.now();
    try {
      const answer = await fetch(strip.dataset.src, { headers: { "X-Requested-With": "hermes" } });
      if (answer.status === 401) return location.reload();
      if (!answer.ok) return;
      const text = await answer.text();
      if (text === strip.dataset.was) return;
      strip.dataset.was = text;
      strip.innerHTML = text;
      showTimes(strip);
    } catch { /* the server restarts: the next try will tell */ }
  }
  if (strip?.dataset.src) {
    readStrip();
    setInterval(readStrip, 5_000);
    document.addEventListener("visibilitychange", readStrip);
  }

  // --- keys

  const KEYS = [["j k", "Next and previous row"], ["Enter", "Open the row"], ["/", "Search"], ["f", "Filters"], ["r", "Refresh; on a turn, replay"],
    ["[ ]", "Previous and next"], ["?", "This help"], ["Esc", "Leave a field, close"]];
  let areKeysOn = memory.get("keys") !== "off";

  const rows = () => [...main.querySelectorAll("tbody tr, [data-row]")].filter((row) =>
    row.offsetParent !== null && (row.hasAttribute("data-row") || row.id || row.querySelector("a[href]")));
  const current = () => main.querySelector('[aria-selected="true"]:is(tr, [data-row])');

  function select(row) {
    current()?.removeAttribute("aria-selected");
    row.setAttribute("aria-selected", "true");
    const link = row.querySelector("a[href]");
    if (!link) row.tabIndex = -1;
    (link ?? row).focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
    if (row.id) history.replaceState(history.state, "", "#" + row.id);  // the address leads a colleague to this row
    row.dispatchEvent(new CustomEvent("hermes:select", { bubbles: true }));
  }

  function move(step) {
    const all = rows();
    if (all.length) select(all[Math.min(Math.max(all.indexOf(current()) + step, 0), all.length - 1)]);
  }

  // A row that the reader leaves, or enters with Tab, is the current one no longer, or from now on.
  main?.addEventListener("focusin", (event) => {
    const row = event.target.closest("tbody tr, [data-row]");
    if (row === current()) return;
    current()?.removeAttribute("aria-selected");
    if (row?.matches(":focus-within")) row.setAttribute("aria-selected", "true");
  });

  function follow(selector) {
    const found = document.querySelector(selector);
    if (found) location.href = found.href;
  }

  function press(found) {
    found.focus();
    if (!found.matches("input, select, textarea")) found.click();
  }

  const acts = {
    j: () => move(1),
    k: () => move(-1),
    "/": () => document.querySelector(".search input")?.focus(),
    f: () => main.querySelector(".filters :is(input, select, button, a, summary)")?.focus(),
    r: () => /\/turns\/[^/]+$/.test(location.pathname) && main.querySelector('a[href$="/replay"]') ? follow('main a[href$="/replay"]') : location.reload(),
    "[": () => follow("a[rel~=prev], link[rel~=prev]"),
    "]": () => follow("a[rel~=next], link[rel~=next]"),
    "?": showHelp,
  };

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    const isTyping = target.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
    if (event.key === "Escape" && isTyping) return target.blur();
    if (event.key === "Escape") document.querySelector(".phone-bar details[open]")?.removeAttribute("open");
    if ((event.key === "Enter" || event.key === " ") && target.matches?.("[data-copy][role=button]")) {
      event.preventDefault();
      return copy(target);
    }
    if (!areKeysOn || isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const own = /^[a-z]$/.test(event.key) ? main?.querySelector(`[data-key="${event.key}"]`) : null;
    const act = own ? () => press(own) : Object.hasOwn(acts, event.key) ? acts[event.key] : null;
    if (!act) return;
    event.preventDefault();
    act();
  });

  document.addEventListener("click", (event) => {
    const copied = event.target.closest("[data-copy][role=button]");
    if (copied) copy(copied);
    const more = document.querySelector(".phone-bar details[open]");
    if (more && !more.contains(event.target)) more.open = false;
  });

  // --- help

  function make(name, about, ...children) {
    const element = Object.assign(document.createElement(name), about);
    element.append(...children);
    return element;
  }

  function keyRows(keys, meaning) {
    const names = keys.split(" ").flatMap((key, at) => at ? [" ", make("kbd", { textContent: key })] : [make("kbd", { textContent: key })]);
    return [make("dt", {}, ...names), make("dd", { textContent: meaning })];
  }

  function showHelp() {
    const own = [...(main?.querySelectorAll("[data-key]") ?? [])].map((found) =>
      [found.dataset.key, found.title || found.getAttribute("aria-label") || found.textContent.trim()]);
    const known = KEYS.filter(([keys]) => !own.some(([key]) => key === keys));
    const box = make("input", { type: "checkbox", checked: areKeysOn });
    box.addEventListener("change", () => {
      areKeysOn = box.checked;
      memory.set("keys", areKeysOn ? "on" : "off");
    });
    const dialog = make("dialog", {},
      make("h2", { textContent: "Keyboard", id: "keys-title" }),
      make("dl", {}, ...[...known, ...own].flatMap(([keys, meaning]) => keyRows(keys, meaning))),
      make("p", {}, make("label", {}, box, " Use these keys in this browser")),
      make("form", { method: "dialog" }, make("button", { textContent: "Close", className: "main" })));
    dialog.setAttribute("aria-labelledby", "keys-title");
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  // The button is for readers who switched the keys off, or do not know of them.
  const side = document.querySelector(".side");
  if (side) {
    const help = make("button", { type: "button", className: "keys", textContent: "Keyboard" });
    help.addEventListener("click", showHelp);
    side.append(help);
  }

  // --- how long content stays open. At the end the page is loaded again, and is closed. A browser whose clock is wrong shows the server's
  // time.

  for (const element of document.querySelectorAll("[data-until]")) {
    const left = () => Math.round((new Date(element.dataset.until) - Date.now()) / 1000);
    const show = () => {
      const seconds = left();
      if (seconds <= 0) {
        clearInterval(timer);
        location.reload();
      } else {
        element.textContent = seconds > 60 ? `for ${Math.ceil(seconds / 60)} min` : `for ${seconds} s`;
      }
    };
    const isPlausible = left() > 0 && left() <= 900;
    const timer = isPlausible ? setInterval(show, 1000) : 0;
    if (isPlausible) show();
  }
})();
