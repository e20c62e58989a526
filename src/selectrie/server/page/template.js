// @ts-check
/** The tab Template: a page that fills while its slots are decided. */

import { figureOf } from "./drawing.js";
import { barOf, errorOf, number, percentBetween, score, textOf, visible } from "./format.js";
import {
  area,
  fill,
  freshId,
  h,
  labelled,
  optionsOf,
  parseJson,
  readOptions,
  setter,
  stateOf,
  tableOf,
} from "./form.js";
import { caretOf } from "./grammar.js";
import { massNote, tieWords, toleranceOf, wantedOf } from "./select.js";
import { note } from "./states.js";

/** @typedef {import("./main.js").Context} Context */

const PATH = "/v1/render";
const MOST_CHOICES = 20;
const TEMPLATE = `The following is a character profile for an RPG game in plain text format.
Name: <<name>>
Race: <<race>>
<<#joint k=3>>Class: <<#select 'class'>>ranger<<or>>wizard<<or>>knight<<or>>paladin<</select>>
Armor: <<select 'armor' options=armors>>
Mantra: <<select 'mantra' options=mantras>><</joint>>
Weapon: <<select 'weapon' options=weapons>>`;
const VALUES = {
  name: "Aria",
  race: "elf",
  armors: ["leather", "chainmail", "plate"],
  mantras: ["Honor above all.", "The forest is my home.", "Magic is everywhere.", "I serve the light."],
  weapons: ["sword", "bow", "staff", "silver bow"],
};

/**
 * @typedef {object} Piece A part of the page as it came.
 * @property {string} kind `text`, or the kind of a slot
 * @property {string} text
 * @property {boolean} [hidden]
 * @property {string} [path]
 */
/** @type {WeakMap<HTMLElement, Piece[]>} the parts of the page that came as events */
const pieces = new WeakMap();

/** @type {import("./main.js").Tab} */
export const template = {
  name: "template",
  title: "Template",
  lead: "How does the model fill the slots of a page, each from its own alternatives?",
  isStream: true,
  example: { template: TEMPLATE, values: JSON.stringify(VALUES, null, 1) },
  build(form, context) {
    const source = area("template", { rows: 8, placeholder: "A text with slots: <<select 'name' options=names>>" });
    const values = area("values", { rows: 8, placeholder: '{"names": ["a", "b"]}' });
    source.dir = values.dir = "ltr";
    const box = labelled("Template", source, "<<select …>> is decided, <<gen …>> is written, <<name>> is a value.");
    form.append(
      box,
      labelled("Values, as JSON", values, "They are data: no tag in them is read."),
      optionsOf(context.options[PATH]),
    );
  },
  read(form) {
    const state = stateOf(form);
    const typed = String(state.values ?? "").trim();
    const values = typed ? parseJson("values", typed) : {};
    return {
      path: PATH,
      body: { template: String(state.template ?? ""), values, ...readOptions(form), drawing: true },
      state,
    };
  },
  write: fill,
  begin(place) {
    pieces.delete(place);
  },
  news(event, pane) {
    const { place } = pane;
    const parts = [...(pieces.get(place) ?? []), event];
    pieces.set(place, parts);
    pane.stream();
    pane.progress(parts.filter((one) => one.kind !== "text").length, null, "slot");
    place.replaceChildren(
      h(
        "div",
        { class: "page-text", dir: "auto" },
        parts
          .filter((one) => !one.hidden)
          .map((one) => (one.kind === "text" ? plain(one.text) : h("mark", { class: "slot" }, plain(one.text)))),
      ),
    );
  },
  show,
  numbers: (answer) =>
    scoredSlots(answer).map(({ path, text, record }) => [
      `${path}: ${text}`,
      record.logp,
      errorOf(record.signature?.tolerance, (record.choices?.[record.winner]?.tokens ?? record.tokens)?.length),
    ]),
  explain: (message, form) =>
    caretOf(message, /** @type {HTMLTextAreaElement} */ (form.elements.namedItem("template"))),
};

/**
 * Return a text of the page, its lines kept; only characters that cannot be seen are shown by marks.
 *
 * @param {string} text
 */
function plain(text) {
  return h(
    "bdi",
    {},
    text.split("\n").flatMap((line, at) => [at ? h("br") : null, line.replace(/[^ ]+/g, visible)]),
  );
}

/**
 * @param {any} answer
 * @returns {any[]} the slots that were decided among alternatives
 */
function scoredSlots(answer) {
  return answer.slots.filter((/** @type {any} */ one) => Number.isFinite(one.record?.logp));
}

/**
 * Show a page; a click on a slot opens what it was decided among.
 *
 * @param {any} answer
 * @param {HTMLElement} place
 * @param {Context} context
 * @returns {import("./main.js").Outcome}
 */
function show(answer, place, context) {
  const joint = answer.slots.filter((/** @type {any} */ one) => one.record?.kind === "joint");
  const withRecord = answer.slots.map((/** @type {any} */ one) => ({
    ...one,
    record: one.record ?? joint.find((/** @type {any} */ other) => other.record.names.includes(one.name))?.record,
  }));
  const slots = new Map(withRecord.map((/** @type {any} */ one) => [one.path, one]));
  const detail = h("div", { class: "slot-detail", id: freshId(), hidden: true, tabindex: "-1" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  const buttonOf = (/** @type {any} */ slot, /** @type {string} */ text) => {
    const button = h(
      "button",
      { type: "button", class: "slot", "aria-expanded": "false", "aria-controls": detail.id, "data-slot": slot.path },
      plain(text),
    );
    button.addEventListener("click", () => {
      const opens = button.getAttribute("aria-expanded") !== "true";
      for (const one of buttons) one.setAttribute("aria-expanded", "false");
      button.setAttribute("aria-expanded", String(opens));
      detail.hidden = !opens;
      detail.replaceChildren(...(opens ? detailOf(slot) : []));
    });
    buttons.push(button);
    return button;
  };
  const parts = pieces.get(place) ?? [];
  const shown = parts.filter((one) => !one.hidden);
  // A page that did not come as events has its text alone, and its slots below it.
  const isWhole = shown.map((one) => one.text).join("") === answer.text;
  const body = isWhole
    ? shown.map((one) =>
        one.kind === "text" || !slots.has(one.path) ? plain(one.text) : buttonOf(slots.get(one.path), one.text),
      )
    : [
        plain(answer.text),
        h(
          "p",
          {},
          withRecord.map((/** @type {any} */ one) => buttonOf(one, `${one.name}: ${one.text}`)),
        ),
      ];
  const ties = scoredSlots(answer).filter((one) => one.record.is_tie);
  const low = scoredSlots(answer).filter((one) =>
    (one.record.warnings ?? []).some((/** @type {any} */ warning) => warning.code === "coverage"),
  );
  const notes = [
    ...ties.map((one) => note("tie", [h("strong", {}, "A tie: "), textOf(one.path), ". ", tieOf(one.record)])),
    ...low.map((one) => {
      const button = buttons.find((other) => other.dataset.slot === one.path);
      const remedies = remediesOf(one.name, context);
      if (button) remedies.push(["Show the slot", () => open(button)]);
      const claim = `The model expects something else in the slot ${visible(one.path)}.`;
      const { record } = one;
      return massNote(claim, ["coverage", record.coverage], wantedOf(record), remedies, toleranceOf(record));
    }),
  ];
  const open = (/** @type {HTMLButtonElement} */ button) => {
    if (button.getAttribute("aria-expanded") !== "true") button.click();
    detail.focus();
  };
  place.replaceChildren(
    h("h2", {}, "The page"),
    ...notes,
    h("div", { class: "page-text", dir: "auto" }, body),
    h("p", { class: "hint" }, "A slot opens what it was decided among."),
    detail,
  );
  return {
    state: ties.length ? "tie" : low.length ? "low-mass" : "done",
    sentence: `The page is filled: ${answer.slots.length} slots.`,
  };
}

/**
 * Return changes of the template that may help a slot whose alternatives the model hardly says.
 *
 * @param {string} name of the slot
 * @param {Context} context
 * @returns {[string, () => void][]}
 */
function remediesOf(name, context) {
  const { value } = /** @type {HTMLTextAreaElement} */ (context.form.elements.namedItem("template"));
  const at = [...value.matchAll(/<<#?\s*select\s+['"]([^'"]*)['"]/g)].find((one) => one[1] === name)?.index ?? 0;
  const [before, rest] = [value.slice(0, at), value.slice(at)];
  const set = (/** @type {string} */ text) => setter(context, "template", text);
  /** @type {[string, () => void][]} */
  const remedies = [];
  if (/[^\s>]$/.test(before)) remedies.push(["Put a space before the slot", set(`${before} ${rest}`)]);
  const nOpen = (before.match(/<<#/g)?.length ?? 0) - (before.match(/<<\//g)?.length ?? 0);
  if (context.hasChat && before && !nOpen && !/<<#(user|assistant|system|role)\b/.test(value)) {
    const turns = `<<#user>>${before.trimEnd()}<</user>>\n<<#assistant>>${rest.trimEnd()}<</assistant>>`;
    remedies.push(["Ask as a user, in the chat template", set(turns)]);
  }
  return remedies;
}

/** @param {any} record of a slot whose first place is a tie */
function tieOf(record) {
  return tieWords((record.warnings ?? []).find((/** @type {any} */ one) => one.code === "tie")?.text);
}

/**
 * Return what a slot was decided among.
 *
 * @param {any} slot
 * @returns {(string | Node)[]}
 */
function detailOf(slot) {
  const record = slot.record;
  const head = h("h3", {}, "Slot ", h("bdi", {}, slot.path), ": ", textOf(slot.text, 80));
  const warnings = (record?.warnings ?? [])
    .filter((/** @type {any} */ one) => !["coverage", "tie"].includes(one.code)) // they stand above the page
    .map((/** @type {any} */ one) => note("warning", [h("bdi", {}, one.text)]));
  if (record?.drawing?.trie) return [head, ...warnings, figureOf(record.drawing.trie, { name: "trie" })];
  if (record?.kind === "joint")
    return [
      head,
      h(
        "p",
        {},
        "Decided together with ",
        h("bdi", {}, record.names.filter((/** @type {string} */ one) => one !== slot.name).join(", ")),
        ". The best of all together:",
      ),
      choicesOf(record.assignments, record),
      h("p", {}, "This slot's own share of them:"),
      choicesOf(
        Object.entries(record.marginals[slot.name] ?? {}).map(([text, p]) => ({ text, probability: p, logp: null })),
        record,
      ),
    ];
  if (!Array.isArray(record?.choices))
    return [
      head,
      ...warnings,
      h(
        "p",
        { class: "hint" },
        record ? "This slot was written, and not chosen among alternatives." : "This slot has no scores.",
      ),
    ];
  return [head, ...warnings, choicesOf(record.choices, record)];
}

/**
 * Return the most probable choices as a table.
 *
 * @param {any[]} choices choices of a select, or assignments of slots that are decided together
 * @param {any} record the record that they are of
 */
function choicesOf(choices, record) {
  // A pruned choice has a score of null; marginals have none at all.
  const isOpen = (/** @type {any} */ one) => one.score === null;
  const worth = (/** @type {any} */ one) => one.score ?? one.logp_upper ?? one.probability ?? 0;
  const best = [...choices]
    .sort((a, b) => Number(isOpen(a)) - Number(isOpen(b)) || worth(b) - worth(a))
    .slice(0, MOST_CHOICES);
  const rows = best.map((one) => {
    const [low, high] = [one.probability_low ?? one.probability ?? 0, one.probability_high ?? one.probability ?? 0];
    const p = isOpen(one) ? high : (one.probability ?? low);
    const text = one.texts ? one.texts.join(" / ") : one.text;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, textOf(text, 80)),
      h(
        "td",
        { class: "share" },
        barOf(low, high),
        number(p, percentBetween(low, high, toleranceOf(record)), "probability"),
      ),
      h(
        "td",
        { class: "number" },
        one.logp === null ? "" : number(one.logp, score(one.logp, toleranceOf(record)), "logp"),
      ),
    );
  });
  return tableOf(["choice", "share of the set", "log-probability"], h("tbody", {}, rows));
}
