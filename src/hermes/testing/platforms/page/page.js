// The page of the fake platforms: it fetches the whole state, shows it, and fetches it again when something has changed.
"use strict";

const FAULTS = [
  ["answers 429: too many requests, wait 3 s", { kind: "refuse", status: 429, code: 130429, retry_after: 3 }],
  ["answers 400: the person cannot be reached", { kind: "refuse", status: 400, code: 131026, message: "Bad Request: chat not found" }],
  ["answers 401: the token is wrong", { kind: "refuse", status: 401, code: 190 }],
  ["answers 502 with an HTML page", { kind: "html", status: 502 }],
  ["delivers the message, and breaks the connection", { kind: "reset", arrives: true }],
  ["breaks the connection, and delivers nothing", { kind: "reset", arrives: false }],
  ["delivers the message, and never answers", { kind: "hang", arrives: true }],
  ["takes 8 s to answer", { kind: "slow", over_s: 8 }],
  ["delivers the message, and answers 200 with an empty body", { kind: "raw", body: "", arrives: true }],
  ["is down for a minute", { kind: "html", status: 503, for_s: 60 }],
  ["accepts the message, and reports later that it failed (WhatsApp)", { kind: "fail_later", code: 131026 }],
];

const find = (id) => document.getElementById(id);
const chosen = {};
let state = { rings: -1, platforms: [] };
let platformName = location.hash.slice(1) || "telegram";
let typingSeen = {};
let typingUntil = 0;

for (const [words] of FAULTS) find("kind").append(new Option(words));
find("say").addEventListener("submit", (event) => { event.preventDefault(); say(); });
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); say(); }
});
for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => send(button.dataset.act));
for (const button of document.querySelectorAll("[data-skip]")) {
  button.addEventListener("click", () => post("/_control/time", { skip_s: Number(button.dataset.skip) }));
}
find("block").addEventListener("click", () => act(person().is_blocking ? "unblock" : "block", {}));
find("join").addEventListener("submit", (event) => { event.preventDefault(); join(); });
find("fault").addEventListener("submit", (event) => { event.preventDefault(); addFault(); });
find("heal").addEventListener("click", () => ask(`/_control/${platformName}/faults`, { method: "DELETE" }));
find("disorder").addEventListener("submit", (event) => {
  event.preventDefault();
  const disorder = Object.fromEntries([...new FormData(event.target)].map(([name, value]) => [name, Number(value)]));
  post(`/_control/${platformName}/disorder`, disorder);
});

watch();

async function watch() {
  for (;;) {
    try {
      const response = await fetch(`/_control/state?after=${state.rings}`);
      if (!response.ok) throw new Error(`${response.status}`);
      state = await response.json();
      find("status").textContent = "";
      show();
    } catch {
      find("status").textContent = "The fake platforms do not answer. Are they still running?";
      await new Promise((resolve) => { setTimeout(resolve, 1000); });
    }
  }
}

function platform() { return state.platforms.find((one) => one.name === platformName) ?? state.platforms[0]; }

function person() {
  const { name, people } = platform();
  return people.find((one) => one.id === chosen[name]) ?? people.at(-1);
}

async function ask(url, options) {
  const response = await fetch(url, options);
  find("status").textContent = response.ok ? "" : await response.text();
  return response.ok ? response.json() : null;
}

function post(url, body) {
  return ask(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

function act(what, body) {
  const who = person();
  return who ? post(`/_control/${platformName}/people/${encodeURIComponent(who.id)}/${what}`, body) : join();
}

async function say() {
  const text = find("text").value.trim();
  if (!text || !person()) return;
  if (await act("say", { text })) find("text").value = "";
}

function send(what) {
  const caption = find("text").value.trim();
  const bodies = { picture: { caption }, album: { count: 3, caption }, voice: {}, location: { latitude: -8.6478, longitude: 115.1385 } };
  find("text").value = "";
  return act(what, bodies[what]);
}

async function join() {
  const about = { name: find("name").value.trim() };
  if (platformName.startsWith("whatsapp") && find("no-number").checked) about.phone = null;
  const added = await post(`/_control/${platformName}/people`, about);
  if (added) {
    chosen[platformName] = added.id;
    find("name").value = "";
    show();
  }
}

function addFault() {
  const fault = { ...FAULTS[find("kind").selectedIndex][1] };
  if (platformName === "telegram" && fault.kind === "refuse" && fault.status !== 400) delete fault.code;
  if (platformName !== "telegram" && fault.kind === "refuse") delete fault.message;
  if (find("to").value && person()) fault.to = person().id;
  if (!("for_s" in fault)) fault.times = Number(find("times").value);
  return post(`/_control/${platformName}/faults`, fault);
}

function show() {
  const shown = platform();
  if (!shown) return;
  platformName = shown.name;
  find("platforms").replaceChildren(...state.platforms.map((one) => {
    const button = element("button", one.title, { type: "button" });
    button.setAttribute("aria-pressed", String(one.name === platformName));
    button.addEventListener("click", () => { platformName = one.name; location.hash = one.name; show(); });
    return button;
  }));
  showPeople(shown);
  showTalk(shown, person());
  find("without-number").hidden = !platformName.startsWith("whatsapp");
  find("faults").replaceChildren(...shown.faults.map((fault) => element("li", faultWords(fault))));
  for (const input of find("disorder").elements) {
    if (input.name && document.activeElement !== input) input.value = shown.disorder[input.name];
  }
  find("webhooks").replaceChildren(...shown.webhooks.toReversed().map((one) => line(one.status, webhookWords(one))));
  find("calls").replaceChildren(...shown.calls.toReversed().map((one) => line(one.status, `${one.method} ${one.path}`)));
  find("facts").replaceChildren(...Object.entries(shown.facts).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
}

function showPeople({ people }) {
  find("people").querySelector("ul").replaceChildren(...people.map((one) => {
    const button = element("button", one.name, { type: "button" });
    button.append(element("small", one.id));
    button.setAttribute("aria-current", String(one.id === person().id));
    button.addEventListener("click", () => { chosen[platformName] = one.id; show(); });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

function showTalk({ name }, who) {
  find("who").textContent = who ? who.name : "No person yet: add one on the left";
  find("block").hidden = !who;
  find("say").hidden = !who;
  if (!who) return find("talk").replaceChildren();
  find("block").textContent = who.is_blocking ? "Unblock" : "Block";
  const key = `${name}/${who.id}`;
  if (who.typing_shown > (typingSeen[key] ?? who.typing_shown)) typingUntil = Date.now() + 5000;
  typingSeen[key] = who.typing_shown;
  const seenTexts = new Map();
  const room = find("talk");
  const isAtEnd = room.scrollHeight - room.scrollTop - room.clientHeight < 60;
  room.replaceChildren(...who.talk.map((entry) => bubble(name, entry, seenTexts)));
  if (isAtEnd) room.scrollTop = room.scrollHeight;
  if (who.talk.at(-1)?.by === "account") typingUntil = 0;
  find("typing").hidden = Date.now() > typingUntil;
  if (!find("typing").hidden) setTimeout(show, typingUntil - Date.now() + 50);
}

function bubble(name, entry, seenTexts) {
  const item = document.createElement("li");
  item.className = entry.by === "person" ? "mine" : "theirs";
  const box = element("div", "", { className: "bubble", title: entry.message_id });
  if (entry.kind !== "text") box.append(element("i", `[${entry.kind}] `));
  fill(box, name, entry);
  item.append(box);
  const notes = [];
  if (entry.by === "account") {
    const times = (seenTexts.get(entry.text) ?? 0) + 1;
    seenTexts.set(entry.text, times);
    if (times > 1) notes.push(element("b", `copy ${times}`));
    if (!entry.is_answered) notes.push(element("b", "the sender got no answer from the platform"));
    if (entry.reply_to) notes.push(element("span", `replies to ${entry.reply_to.slice(-12)}`));
  }
  if (notes.length) {
    const note = element("p", "", { className: "note" });
    note.append(...notes);
    item.append(note);
  }
  return item;
}

function faultWords({ kind, status, code, method, to, times, left_s: left, arrives }) {
  const what = [kind, status, code, arrives === false ? "(lost)" : ""].filter(Boolean).join(" ");
  const when = left === null ? `${times ?? "every"} time${times === 1 ? "" : "s"}` : `for ${Math.max(0, Math.round(left))} s`;
  return [what, method && `at ${method}`, to ? `to ${to}` : "", when].filter(Boolean).join(", ");
}

function webhookWords({ body, error }) {
  const kinds = Object.keys(body).filter((key) => key !== "update_id" && key !== "object" && key !== "entry");
  for (const entry of body.entry ?? []) {
    for (const change of entry.changes ?? []) {
      for (const status of change.value?.statuses ?? []) kinds.push(status.status);
      for (const message of change.value?.messages ?? []) kinds.push(message.type);
      if (change.field !== "messages") kinds.push(change.field);
    }
    for (const event of entry.messaging ?? entry.standby ?? []) {
      kinds.push(event.message?.is_echo ? "echo" : Object.keys(event).find((key) => !["sender", "recipient", "timestamp"].includes(key)));
    }
  }
  return `${kinds.join(" + ")}${error ? ` – ${error}` : ""}`;
}

function line(status, words) {
  const item = document.createElement("li");
  item.append(element("span", status ?? "–", { className: status >= 200 && status < 300 ? "good" : "bad" }), element("span", words));
  return item;
}

function element(tag, text, about = {}) {
  const created = Object.assign(document.createElement(tag), about);
  if (text !== "") created.append(text);
  return created;
}
