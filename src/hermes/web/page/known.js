// "What do you know about me?": a panel with every fact, a button to forget each one, and one to forget the user. Needs chat.js.
"use strict";

const panel = document.getElementById("known");
const panelStatus = document.getElementById("known-status");
const facts = document.getElementById("facts");
const before = document.getElementById("before");
const concluded = document.getElementById("concluded");
const kept = document.getElementById("kept");
const offers = document.getElementById("offers");
const sure = document.getElementById("sure");
const yes = document.getElementById("yes");
const closer = document.getElementById("close");

const SOURCES = { said: "You said so", rule: "You said so", tool: "You had it noted", system: "From what you did here" };
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

document.getElementById("ask").addEventListener("click", () => {
  wipe();
  panel.showModal();
  look();
});
closer.addEventListener("click", () => panel.close());
panel.addEventListener("click", (event) => {
  if (event.target === panel) panel.close(); // a click beside the panel
});
document.getElementById("no").addEventListener("click", keepIt);
document.getElementById("forget-all").addEventListener("click", () => {
  askFirst("Forget everything that is listed here? Hermes begins a new conversation then.", async () => {
    await erase("/web/my-data/memory");
    await look("Forgotten.");
  });
});
document.getElementById("forget-me").addEventListener("click", () => {
  askFirst("Forget you for good? What you said here can never be read again. This cannot be undone.", async () => {
    const response = await erase("/web/my-data");
    startAnew();
    panel.close();
    // 200, with a body: forgotten only here, because the user writes from other places too.
    say(`You are forgotten${response.status === 200 ? " here, but not in the other places that you write from" : ""}. If you write here now, you are a new user.`);
    field.focus();
  });
});

async function look(notice = "") {
  setStatus(notice || "Looking…");
  try {
    const response = await fetch("/web/my-data", { signal: AbortSignal.timeout(20_000) });
    if (response.ok) showAll(await response.json(), notice);
    else await showUnknown(response);
  } catch (error) {
    wipe();
    setStatus(error.isTold ? error.message : "Hermes cannot be reached.");
  }
}

async function showUnknown(response) {
  const error = await response.clone().json().then((body) => body.error, () => ({}));
  if (error.code !== "unknown_user") throw await refusal(response);
  wipe();
  setStatus("Nothing. You have not said anything yet.");
}

function showAll(data, notice) {
  const live = data.facts.filter((fact) => !fact.superseded_at);
  const old = data.facts.filter((fact) => fact.superseded_at);
  const lines = data.dreams.filter((dream) => dream.kind === "insight" && dream.review === "accepted");
  facts.replaceChildren(...live.map(factLine));
  before.lastElementChild.replaceChildren(...old.map(factLine));
  concluded.lastElementChild.replaceChildren(...lines.map((dream) => lineOf(dream.text)));
  before.hidden = !old.length;
  concluded.hidden = !lines.length;
  kept.textContent = `Also kept: ${counts(data.kept)}. You have ${data.credits.available} credits.${opened(data.opened_by_operators)}`;
  offers.hidden = false;
  sure.hidden = true;
  document.getElementById("forget-all").hidden = !data.facts.length && !data.dreams.length;
  setStatus(notice || (live.length ? "" : "Nothing yet. It remembers what you tell it about yourself."));
}

function factLine(fact) {
  const name = fact.key ? `${fact.key.replaceAll("_", " ")}: ${fact.text}` : fact.text;
  const until = fact.superseded_at ? `, until ${day.format(new Date(fact.superseded_at))}` : "";
  const item = lineOf(name, `${SOURCES[fact.origin] ?? fact.origin}, ${day.format(new Date(fact.valid_from))}${until}`);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Forget";
  button.setAttribute("aria-label", `Forget: ${name}`);
  button.addEventListener("click", () => drop(fact, item, button));
  item.append(button);
  return item;
}

function lineOf(text, source) {
  const item = document.createElement("li");
  const box = document.createElement("div");
  const words = document.createElement("span");
  words.dir = "auto";
  words.textContent = text;
  box.append(words);
  if (source) {
    const note = document.createElement("small");
    note.textContent = source;
    box.append(note);
  }
  item.append(box);
  return item;
}

async function drop(fact, item, button) {
  button.disabled = true;
  const list = item.parentElement;
  const place = [...list.children].indexOf(item);
  try {
    await erase(`/web/my-data/memory/${fact.id}`);
  } catch (error) {
    button.disabled = false;
    setStatus(error.message);
    return;
  }
  await look("Forgotten.");
  // A user who goes through the list with the keyboard goes on from the same place.
  const next = list.children[place] ?? list.lastElementChild;
  (next?.querySelector("button") ?? closer).focus();
}

async function erase(path) {
  const response = await fetch(path, { method: "DELETE", signal: AbortSignal.timeout(20_000) }).catch(() => {
    throw new Error("Hermes cannot be reached.");
  });
  // 404: it was forgotten before.
  if (!response.ok && response.status !== 404) throw await refusal(response);
  return response;
}

// --- a question before an action that cannot be undone

function askFirst(question, act) {
  document.getElementById("question").textContent = question;
  offers.hidden = true;
  sure.hidden = false;
  yes.disabled = false;
  yes.onclick = async () => {
    yes.disabled = true;
    try {
      await act();
    } catch (error) {
      keepIt();
      setStatus(error.message);
    }
  };
  document.getElementById("no").focus();
  sure.scrollIntoView({ block: "nearest" });
}

function keepIt() {
  sure.hidden = true;
  offers.hidden = false;
  document.getElementById("forget-me").focus();
}

function setStatus(text) {
  if (panelStatus.textContent !== text) panelStatus.textContent = text;
}

function wipe() {
  facts.replaceChildren();
  for (const part of [before, concluded, offers, sure]) part.hidden = true;
  kept.textContent = "";
}

function counts({ facts, conversations, ...kept }) {
  // The facts are listed above. The other kinds are the messages, and the tables of packs: price_watchers.
  const parts = Object.entries(kept).filter(([, number]) => number);
  return parts.map(([kind, number]) => `${number} ${nameOf(kind, number)}`).join(", ") || "nothing";
}

function opened(times) {
  return times ? ` The operators of this service opened what you wrote ${times === 1 ? "once" : `${times} times`}.` : "";
}

function nameOf(kind, number) {
  const name = kind.replaceAll("_", " ");
  return number === 1 ? name.replace(/s$/, "") : name;
}
