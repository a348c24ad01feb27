// Shows a message as a phone does: Telegram's entities, WhatsApp's marks in the text. Inserts everything as text, nothing as HTML.
"use strict";

const TELEGRAM = {
  bold: "b", italic: "i", underline: "u", strikethrough: "s", code: "code", pre: "pre", blockquote: "blockquote",
  expandable_blockquote: "blockquote", text_link: "a", spoiler: "span",
};
const WHATSAPP = [
  [/```([^`]+?)```/, "pre"], [/`([^`\n]+?)`/, "code"], [/(?<![\w*])\*(\S(?:[^*\n]*?\S)?)\*(?![\w*])/, "b"],
  [/(?<![\w_])_(\S(?:[^_\n]*?\S)?)_(?![\w_])/, "i"], [/(?<![\w~])~(\S(?:[^~\n]*?\S)?)~(?![\w~])/, "s"], [/^> (.*)$/m, "blockquote"],
];

function fill(box, platform, entry) {
  if (platform === "telegram" && entry.entities?.length) fillTelegram(box, entry.text, entry.entities);
  else if (platform.startsWith("whatsapp")) fillWhatsApp(box, entry.text);
  else box.append(entry.text);
}

// Entities may contain each other and never cross, so they are a tree. Offsets count UTF-16 code units, as JavaScript does.
function fillTelegram(box, text, entities) {
  const sorted = [...entities].sort((a, b) => a.offset - b.offset || b.length - a.length);
  let next = 0;
  const write = (into, start, end) => {
    let at = start;
    while (next < sorted.length && sorted[next].offset < end) {
      const entity = sorted[next];
      next += 1;
      into.append(text.slice(at, entity.offset));
      const inner = document.createElement(TELEGRAM[entity.type] ?? "span");
      if (entity.type === "spoiler") inner.className = "spoiler";
      if (entity.url && /^(https?|tg):\/\//.test(entity.url)) Object.assign(inner, { href: entity.url, rel: "noreferrer", target: "_blank" });
      if (entity.language) inner.title = entity.language;
      write(inner, entity.offset, entity.offset + entity.length);
      into.append(inner);
      at = entity.offset + entity.length;
    }
    into.append(text.slice(at, end));
  };
  write(box, 0, text.length);
}

function fillWhatsApp(box, text) {
  let first = null;
  for (const [pattern, tag] of WHATSAPP) {
    const found = pattern.exec(text);
    if (found && (!first || found.index < first.found.index)) first = { found, tag };
  }
  if (!first) {
    box.append(text);
    return;
  }
  const { found, tag } = first;
  box.append(text.slice(0, found.index));
  const inner = document.createElement(tag);
  if (tag === "pre" || tag === "code") inner.append(found[1].replace(/^\n|\n$/g, ""));
  else fillWhatsApp(inner, found[1]);
  box.append(inner);
  const rest = text.slice(found.index + found[0].length);
  fillWhatsApp(box, tag === "pre" || tag === "blockquote" ? rest.replace(/^\n/, "") : rest); // a block already ends its line
}
