// The page of the fake platforms: it asks for everything that is there, shows it, and asks again when something is new.
"use strict";

const FAULTS = [
  ["says it is too much: 429, wait 3 s", { kind: "refuse", status: 429, code: 130429, retry_after: 3 }],
  ["refuses: 400, the person cannot be reached", { kind: "refuse", status: 400, code: 131026, message: "Bad Request: chat not found" }],
  ["refuses: 401, the token is wrong", { kind: "refuse", status: 401, code: 190 }],
  ["answers 502 with a page", { kind: "html", status: 502 }],
  ["delivers, and breaks the connection", { kind: "reset", arrives: true }],
  ["breaks the connection", { kind: "reset", arrives: false }],
  ["delivers, and never answers", { kind: "hang", arrives: true }],
  ["takes 8 s for its answer", { kind: "slow", over_s: 8 }],
  ["answers 200 with nothing", { kind: "raw", body: "", arrives: true }],
  ["is down for a minute", { kind: "html", status: 503, for_s: 60 }],
  ["accepts, and fails later (WhatsApp)", { kind: "fail_later", code: 131026 }],
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
  button.addEventListener("click", () => pull("/_control/time", { skip_s: Number(button.dataset.skip) }));
}
find("block").addEventListener("click", () => act(person().is_blocking ? "unblock" : "block", {}));
find("join").addEventListener("submit", (event) => { event.preventDefault(); join(); });
find("fault").addEventListener("submit", (event) => { event.preventDefault(); breakIt(); });
find("heal").addEventListener("click", () => ask(`/_control/${platformName}/faults`, { method: "DELETE" }));
find("disorder").addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = Object.fromEntries([...new FormData(event.target)].map(([name, value]) => [name, Number(value)]));
  pull(`/_control/${platformName}/disorder`, wanted);
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

function pull(url, body) {
  return ask(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

function act(what, body) {
  const who = person();
  return who ? pull(`/_control/${platformName}/people/${encodeURIComponent(who.id)}/${what}`, body) : join();
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
  const wanted = { name: find("name").value.trim() };
  if (platformName.startsWith("whatsapp") && find("no-number").checked) wanted.phone = null;
  const made = await pull(`/_control/${platformName}/people`, wanted);
  if (made) {
    chosen[platformName] = made.id;
    find("name").value = "";
    show();
  }
}

function breakIt() {
  const fault = { ...FAULTS[find("kind").selectedIndex][1] };
  if (platformName === "telegram" && fault.kind === "refuse" && fault.status !== 400) delete fault.code;
  if (platformName !== "telegram" && fault.kind === "refuse") delete fault.message;
  if (find("to").value && person()) fault.to = person().id;
  if (!("for_s" in fault)) fault.times = Number(find("times").value);
  return pull(`/_control/${platformName}/faults`, fault);
}

function show() {
  const shown = platform();
  if (!shown) return;
  platformName = shown.name;
  find("platforms").replaceChildren(...state.platforms.map((one) => {
    const button = made("button", one.title, { type: "button" });
    button.setAttribute("aria-pressed", String(one.name === platformName));
    button.addEventListener("click", () => { platformName = one.name; location.hash = one.name; show(); });
    return button;
  }));
  showPeople(shown);
  showTalk(shown, person());
  find("without-number").hidden = !platformName.startsWith("whatsapp");
  find("faults").replaceChildren(...shown.faults.map((cue) => made("li", faultWords(cue))));
  for (const input of find("disorder").elements) {
    if (input.name && document.activeElement !== input) input.value = shown.disorder[input.name];
  }
  find("webhooks").replaceChildren(...shown.webhooks.toReversed().map((one) => line(one.status, webhookWords(one))));
  find("calls").replaceChildren(...shown.calls.toReversed().map((one) => line(one.status, `${one.method} ${one.path}`)));
  find("facts").replaceChildren(...Object.entries(shown.facts).flatMap(([name, value]) => [made("dt", name), made("dd", value)]));
}

function showPeople({ people }) {
  find("people").querySelector("ul").replaceChildren(...people.map((one) => {
    const button = made("button", one.name, { type: "button" });
    button.append(made("small", one.id));
    button.setAttribute("aria-current", String(one.id === person().id));
    button.addEventListener("click", () => { chosen[platformName] = one.id; show(); });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

function showTalk({ name }, who) {
  find("who").textContent = who ? who.name : "Nobody yet: add somebody on the left";
  find("block").hidden = !who;
  find("say").hidden = !who;
  if (!who) return find("talk").replaceChildren();
  find("block").textContent = who.is_blocking ? "Unblock" : "Block";
  const key = `${name}/${who.id}`;
  if (who.typing_shown > (typingSeen[key] ?? who.typing_shown)) typingUntil = Date.now() + 5000;
  typingSeen[key] = who.typing_shown;
  const told = new Map();
  const room = find("talk");
  const isAtEnd = room.scrollHeight - room.scrollTop - room.clientHeight < 60;
  room.replaceChildren(...who.talk.map((entry) => bubble(name, entry, told)));
  if (isAtEnd) room.scrollTop = room.scrollHeight;
  if (who.talk.at(-1)?.by === "account") typingUntil = 0;
  find("typing").hidden = Date.now() > typingUntil;
  if (!find("typing").hidden) setTimeout(show, typingUntil - Date.now() + 50);
}

function bubble(name, entry, told) {
  const item = document.createElement("li");
  item.className = entry.by === "person" ? "mine" : "theirs";
  const box = made("div", "", { className: "bubble", title: entry.message_id });
  if (entry.kind !== "text") box.append(made("i", `[${entry.kind}] `));
  fill(box, name, entry);
  item.append(box);
  const notes = [];
  if (entry.by === "account") {
    const times = (told.get(entry.text) ?? 0) + 1;
    told.set(entry.text, times);
    if (times > 1) notes.push(made("b", `copy ${times}`));
    if (!entry.is_answered) notes.push(made("b", "whoever sent it saw a broken connection"));
    if (entry.reply_to) notes.push(made("span", `answers ${entry.reply_to.slice(-12)}`));
  }
  if (notes.length) {
    const note = made("p", "", { className: "note" });
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
  item.append(made("span", status ?? "–", { className: status >= 200 && status < 300 ? "good" : "bad" }), made("span", words));
  return item;
}

function made(tag, text, about = {}) {
  const element = Object.assign(document.createElement(tag), about);
  if (text !== "") element.append(text);
  return element;
}
