// The chat page. It sends messages one after the other, and watches one turn at a time, the oldest: the turns of a conversation run in
// order, and a browser opens few connections to one server. Every message has its own id, so the page can repeat a try: Hermes answers once.
"use strict";

const KEPT = "hermes.talk";
const NEWS_EVERY_MS = 15_000;
const TRIES = 4;
const talk = document.getElementById("talk");
const empty = document.getElementById("empty");
const status = document.getElementById("status");
const form = document.getElementById("say");
const field = document.getElementById("text");
const room = document.querySelector("main");

// One entry: {id, text, state, turn, answer, error}. States: sending → waiting → answered; or failed, and sending again.
// A proactive message of Hermes is an entry too: {id, state: "news", answer, news}.
let entries = restored();
let isSending = false;
let isKnown = false;
let isWatching = false;
let isFollowing = true; // the end stays in sight until the user scrolls up

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = field.value.trim();
  if (!text) return;
  field.value = "";
  fit();
  add({ id: newId(), text, state: "sending" });
  field.focus();
});

field.addEventListener("keydown", (event) => {
  // While a word is being composed (Japanese, Chinese, Korean …) Enter belongs to the composition.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
    event.preventDefault();
    form.requestSubmit();
  }
});

field.addEventListener("input", fit);
room.addEventListener("scroll", () => { isFollowing = room.scrollHeight - room.scrollTop - room.clientHeight < 80; });
new ResizeObserver(follow).observe(room); // a phone's keyboard takes half of the screen
window.addEventListener("online", () => { calm(); work(); });
window.addEventListener("offline", () => say("You are offline. What you write is sent when you are back."));

for (const entry of entries) show(entry);
toTheEnd();
field.focus();
work();
setInterval(askForNews, NEWS_EVERY_MS);
document.addEventListener("visibilitychange", askForNews);
askForNews();

function add(entry) {
  entries.push(entry);
  show(entry);
  toTheEnd();
  keep();
  work();
}

function retry(entry) {
  // It moves to the end, because its answer will come there.
  entries = entries.filter((other) => other !== entry);
  for (const line of [entry.line, entry.reply]) line?.remove();
  // With the same id Hermes would only find the accepted message again, so that one gets a new id. One that was perhaps not accepted keeps its id.
  add({ id: entry.turn ? newId() : entry.id, text: entry.text, choice: entry.choice, state: "sending" });
  field.focus();
}

function work() {
  sendAll();
  watchAll();
}

// After the user was forgotten: the next message is from a new user.
function startAnew() {
  entries = [];
  isKnown = false;
  talk.replaceChildren();
  empty.hidden = false;
  keep();
}

async function sendAll() {
  if (isSending) return;
  isSending = true;
  let entry;
  while ((entry = entries.find((one) => one.state === "sending"))) {
    try {
      const receipt = await persistently(() => send(entry));
      change(entry, { state: "waiting", turn: receipt.turn_id });
      watchAll();
    } catch (error) {
      change(entry, { state: "failed", error: error.message });
    }
  }
  isSending = false;
}

// Reminders come by themselves, not as an answer. A user who has written nothing here has none.
async function askForNews() {
  if (document.hidden || !entries.length) return;
  const seen = Math.max(0, ...entries.map((entry) => entry.news ?? 0));
  try {
    const response = await fetch(`/web/news?after=${seen}`, { signal: AbortSignal.timeout(20_000) });
    if (!response.ok) return;
    for (const { id, text } of (await response.json()).news) {
      if (entries.some((entry) => entry.news === id)) continue;
      add({ id: newId(), state: "news", answer: text, news: id });
    }
  } catch {
    // The next call tries again.
  }
}

async function send(entry) {
  // First the visitor's cookie: without it each try of the first message would come from a new user.
  if (!isKnown) await post("/web/visitor", {});
  isKnown = true;
  return (await post("/web/messages", { id: entry.id, text: entry.text, choice: entry.choice ?? "" })).json();
}

async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(20_000),
  });
  if (!response.ok) throw await refusal(response);
  return response;
}

async function watchAll() {
  if (isWatching) return;
  isWatching = true;
  let entry;
  while ((entry = entries.find((one) => one.state === "waiting"))) {
    try {
      const { text, offers } = await answerOf(entry);
      change(entry, { state: "answered", answer: text, offers });
      calm();
    } catch (error) {
      change(entry, { state: "failed", error: error.message });
    }
  }
  isWatching = false;
}

// Wait for the answer as long as it takes: by events, and by asking if those break off.
async function answerOf(entry) {
  for (let lost = 0; ; lost += 1) {
    const answer = await answerFromEvents(entry.turn);
    if (answer !== null) return answer;
    try {
      const response = await fetch(`/web/messages/${entry.turn}`, { signal: AbortSignal.timeout(20_000) });
      if (response.status === 200) return await response.json();
      if (response.status !== 202) throw await refusal(response);
    } catch (error) {
      if (error.isFinal) throw error;
      say("The connection was lost. Connecting again…");
    }
    await sleep(backoff(lost));
  }
}

function answerFromEvents(turn) {
  return new Promise((resolve) => {
    const events = new EventSource(`/web/messages/${turn}/events`);
    const end = (answer) => { events.close(); resolve(answer); };
    events.addEventListener("accepted", calm);
    events.addEventListener("message", (event) => end(JSON.parse(event.data)));
    // Both the server's `error` and a broken connection arrive here; asking tells them apart.
    events.addEventListener("error", () => end(null));
  });
}

async function persistently(attempt) {
  for (let tries = 1; ; tries += 1) {
    await untilOnline();
    try {
      const result = await attempt();
      calm();
      return result;
    } catch (error) {
      if (error.isFinal || tries >= TRIES) {
        throw error.isFinal || error.isTold ? error : new Error("Hermes cannot be reached.");
      }
      await sleep(backoff(tries - 1));
    }
  }
}

async function refusal(response) {
  const message = await response.json().then((body) => body.error.message, () => `The server answered ${response.status}.`);
  const error = new Error(message);
  error.isTold = true;
  // 5xx and 429 are temporary; after any other status the next try would fail too.
  error.isFinal = response.status < 500 && response.status !== 429;
  return error;
}

// --- what the user sees

function show(entry) {
  empty.hidden = true;
  entry.line = line(entry.state === "news" ? "theirs" : "mine");
  talk.append(entry.line);
  draw(entry);
}

function change(entry, facts) {
  Object.assign(entry, facts);
  draw(entry);
  follow();
  keep();
}

function draw(entry) {
  if (entry.state === "news") {
    entry.line.replaceChildren(unseen("Hermes said:"), bubble(entry.answer));
    return;
  }
  const note = { sending: "Sending…", failed: entry.error }[entry.state];
  entry.line.className = entry.state === "failed" ? "mine failed" : "mine";
  entry.line.dataset.state = entry.state;
  entry.line.replaceChildren(unseen("You said:"), bubble(entry.text));
  if (note) entry.line.append(remark(entry, note));
  if (entry.state === "waiting" || entry.state === "answered") {
    if (!entry.reply) {
      entry.reply = line("theirs");
      entry.line.after(entry.reply);
    }
    entry.reply.replaceChildren(...(entry.state === "answered" ? [unseen("Hermes said:"), bubble(entry.answer)] : [dots()]));
    for (const offer of entry.offers ?? []) entry.reply.append(choices(entry, offer));
  } else {
    entry.reply?.remove();
    delete entry.reply;
  }
}

function line(kind) {
  const item = document.createElement("li");
  item.className = kind;
  return item;
}

function bubble(text) {
  const box = document.createElement("div");
  box.className = "bubble";
  box.dir = "auto";
  box.textContent = text;
  return box;
}

function unseen(text) {
  const label = document.createElement("span");
  label.className = "unseen";
  label.textContent = text;
  return label;
}

function dots() {
  const box = document.createElement("div");
  box.className = "bubble dots";
  box.append(unseen("Hermes is answering"), ...[1, 2, 3].map(() => document.createElement("i")));
  return box;
}

function remark(entry, text) {
  const note = document.createElement("p");
  note.className = "note";
  note.textContent = text;
  if (entry.state === "failed") {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Try again";
    button.addEventListener("click", () => retry(entry));
    note.append(button);
  }
  return note;
}

// The buttons of an offer. A press sends the button's id, which no typed text can be; the server checks whose offer it is.
function choices(entry, offer) {
  const row = document.createElement("div");
  row.className = "choices";
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", offer.text);
  for (const { id, label } of offer.buttons) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => {
      entry.offers = entry.offers.filter((other) => other !== offer);
      row.remove();
      add({ id: newId(), text: label, choice: id, state: "sending" });
    });
    row.append(button);
  }
  return row;
}

function say(text) {
  if (status.textContent !== text) status.textContent = text;
}

function calm() {
  // A response that was under way when the connection broke may still arrive; the browser is offline all the same.
  if (navigator.onLine) say("");
}

function fit() {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

function follow() {
  if (isFollowing) toTheEnd();
}

function toTheEnd() {
  room.scrollTop = room.scrollHeight;
  isFollowing = true;
}

// --- storage in this tab, so that a reload shows the conversation again and goes on waiting

function keep() {
  try {
    const plain = entries.map(
      ({ id, text, choice, state, turn, answer, offers, error, news }) => ({ id, text, choice, state, turn, answer, offers, error, news }),
    );
    sessionStorage.setItem(KEPT, JSON.stringify(plain.slice(-200)));
  } catch {
    // The storage is full or forbidden: a reload then starts empty.
  }
}

function restored() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) ?? [];
  } catch {
    return [];
  }
}

// --- helpers

function newId() {
  // crypto.randomUUID is missing where the page is not served over https or from this machine.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

function backoff(tries) {
  return Math.random() * Math.min(10_000, 500 * 2 ** tries) + 250;
}

function untilOnline() {
  if (navigator.onLine) return null;
  return new Promise((resolve) => window.addEventListener("online", resolve, { once: true }));
}

function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
