// @ts-check
/** The tabs Select and Rank: a prompt, choices, and which of them the model finds most probable. */

import { figureOf } from "./drawing.js";
import { UNKNOWN, barOf, number, percent, percentBetween, score, textOf, visible, whole } from "./format.js";
import {
  area,
  factsOf,
  fill,
  filtered,
  h,
  labelled,
  optionsOf,
  partOf,
  readLines,
  readOptions,
  setter,
  stateOf,
  tableOf,
} from "./form.js";
import { note } from "./states.js";

/** @typedef {import("./main.js").Tab} Tab */
/** @typedef {import("./main.js").Context} Context */
/**
 * @typedef {object} Choice A choice of an answer.
 * @property {string} text
 * @property {number | null} logp
 * @property {number | null} logp_upper
 * @property {number | null} score
 * @property {number | null} probability
 * @property {number | null} probability_low
 * @property {number | null} probability_high
 * @property {number | null} logp_local
 * @property {number | null} duplicate_of
 */

const OF_GRAMMARS = new Set(["max_tokens", "search.max_tokens", "search.canonical_only"]);

/** @type {Record<string, Record<string, any>>} */
const EXAMPLES = {
  select: { prompt: "Q: Which city in the United States comes to mind? A:", choices: " Chicago\n New Zealand" },
  rank: {
    prompt: "Q: What is the capital of Australia? A:",
    choices: " Sydney\n Canberra\n Wellington\n Melbourne\n Canberra or Sydney",
  },
};

export const select = tabOf(
  "select",
  "Select",
  "/v1/select",
  "Which of these texts does the model find most probable after the prompt?",
);
export const rank = tabOf(
  "rank",
  "Rank",
  "/v1/rank",
  "In which order does the model find these texts probable after the prompt?",
);

/**
 * @param {string} name
 * @param {string} title
 * @param {string} path
 * @param {string} lead
 * @returns {Tab}
 */
function tabOf(name, title, path, lead) {
  return {
    name,
    title,
    lead,
    isStream: true,
    isLive: name === "select",
    example: EXAMPLES[name],
    build(form, context) {
      form.append(...promptFields());
      form.append(choicesField());
      form.append(optionsOf(context.options[path], (one) => !OF_GRAMMARS.has(one.path)));
    },
    read(form) {
      const state = stateOf(form);
      const options = readOptions(form);
      const choices = readLines(String(state.choices ?? ""));
      return { path, body: { ...promptOf(state), choices, ...options, drawing: true }, state };
    },
    write(form, state) {
      fill(form, state);
      form.querySelector("[name=choices]")?.dispatchEvent(new Event("input"));
    },
    show: (answer, place, context) => showSelection(answer, place, context, name === "rank"),
  };
}

/**
 * Return the fields of a prompt: its text, and whether it is a message of a user.
 *
 * @returns {HTMLElement[]}
 */
export function promptFields() {
  const control = area("prompt", { rows: 4, placeholder: "The text that is continued" });
  const mode = h(
    "select",
    { name: "mode", "data-path": "user", "aria-label": "How the prompt is read" },
    h("option", { value: "" }, "as a text that goes on"),
    h("option", { value: "user" }, "as a message of a user (chat template)"),
  );
  const box = labelled("Prompt", control);
  box.classList.add("prompt");
  control.before(mode);
  return [box];
}

/**
 * Return the fields of a body that `promptFields` stands for.
 *
 * @param {Record<string, any>} state
 */
export function promptOf(state) {
  return { [state.mode === "user" ? "user" : "prompt"]: state.prompt ?? "" };
}

/** Return the field of choices, one on a line, with how they are read below it. */
function choicesField() {
  const control = area("choices", { rows: 4, placeholder: "One on a line" });
  control.dataset.lines = "";
  const box = labelled(
    "Choices, one on a line",
    control,
    "Spaces at the beginning count; \\n is a line end, \\t a tab, \\\\ a backslash.",
  );
  const read = h("p", { class: "read-as" });
  box.classList.add("choices");
  box.append(read);
  let timer = 0;
  control.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const choices = readLines(control.value);
      const some = choices.slice(0, 8).map((one) => h("span", { class: "chip" }, textOf(one, 40)));
      const more = choices.length > 8 ? h("span", { class: "more" }, `and ${whole(choices.length - 8)} more`) : null;
      read.replaceChildren(...some, ...(more ? [more] : []));
    }, 120);
  });
  return box;
}

/**
 * Show the answer of a select or a rank.
 *
 * @param {any} answer
 * @param {HTMLElement} place
 * @param {Context} context
 * @param {boolean} [isRank] whether the order of all choices comes first
 * @returns {import("./main.js").Outcome}
 */
export function showSelection(answer, place, context, isRank = false) {
  const say = answer.drawing?.sentences ?? {};
  /** @type {{code: string, text: string, remedy?: {option: string}}[]} */
  const warnings = answer.warnings ?? [];
  const low = warnings.find((one) => one.code === "coverage");
  const cannotDraw = Boolean(answer.drawing) && !answer.drawing.trie;
  const parts = [
    h("div", { class: "head" }, headlineOf(answer, say), sharesOf(answer, say)),
    answer.is_tie && note("tie", [h("strong", {}, "A tie. "), h("bdi", {}, tieWords(say.tie))]),
    low && lowMass(answer, low.remedy?.option ?? "", context),
    ...warnings
      .filter((one) => !["coverage", "tie"].includes(one.code))
      .map((one) => note("warning", [h("bdi", {}, one.text)])),
    isRank && choicesOf(answer),
    answer.drawing?.strip &&
      partOf("Everything the model would say next", figureOf(answer.drawing.strip, { name: "strip" })),
    cannotDraw && note("too-large", ["This is too large to draw. The list below has every choice."]),
    answer.drawing?.trie && trieOf(answer, context),
    !isRank && choicesOf(answer),
    foundBy(answer, say),
  ];
  keepOpen(place, () => place.replaceChildren(...parts.filter(Boolean)));
  return {
    state: answer.is_tie ? "tie" : low ? "low-mass" : cannotDraw ? "too-large" : "done",
    sentence: say.winner ? ended(say.winner) : `${visible(answer.text)} comes first.`,
  };
}

/**
 * Change a place; lists that were open stay so, and the focus stays on its node.
 *
 * @param {HTMLElement} place
 * @param {() => void} change
 */
function keepOpen(place, change) {
  const selector = (/** @type {Element} */ one) => `figure.${[...one.classList].join(".")}`;
  const open = [...place.querySelectorAll("figure:has(> details[open])")].map(selector);
  const node =
    document.activeElement instanceof HTMLElement && place.contains(document.activeElement)
      ? document.activeElement.dataset.node
      : undefined;
  change();
  for (const one of open) place.querySelector(`${one} > details`)?.setAttribute("open", "");
  if (node !== undefined)
    /** @type {HTMLElement | null} */ (place.querySelector(`button[data-node="${node}"]`))?.focus();
}

/**
 * Return what a tie means, as a sentence: the server's own words where it has some.
 *
 * @param {string | null | undefined} words
 */
export function tieWords(words) {
  const said = words || "the first two have the same score; the one listed first was taken";
  return ended(said[0].toUpperCase() + said.slice(1));
}

/** @typedef {Record<string, string | null>} Sentences */

/**
 * Return the winner, and in words why it wins.
 *
 * @param {any} answer
 * @param {Sentences} say
 */
function headlineOf(answer, say) {
  // A strip ends with whether its rows agree.
  const words = [say.winner, answer.drawing?.strip ? null : say.agreement].map(
    (one) => one && h("p", { class: "sentence" }, h("bdi", {}, ended(one))),
  );
  return h(
    "div",
    { class: "headline" },
    h(
      "p",
      { class: "winner" },
      h("span", { class: "star", "aria-hidden": "true" }, answer.is_tie ? "= " : "★ "),
      textOf(answer.text, 200),
    ),
    words,
  );
}

/** @param {string} sentence */
function ended(sentence) {
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}

/**
 * Return the two shares of the winner: of the set, and of everything the model would say.
 *
 * @param {any} answer
 * @param {Sentences} say
 */
function sharesOf(answer, say) {
  const choice = answer.choices[answer.winner];
  if (!choice) return null;
  const share = (/** @type {string} */ name, /** @type {string | null | undefined} */ text, /** @type {number} */ p) =>
    /** @type {[string, Node]} */ ([name, number(p, text || percent(p, toleranceOf(answer)), name)]);
  const shares = [
    share("share of the set", say.share_of_set, choice.probability ?? choice.probability_low),
    share("share of everything the model would say", say.share_of_all, Math.exp(answer.logp)),
  ];
  return factsOf(shares, "big");
}

/**
 * Return how an answer was found.
 *
 * @param {any} answer
 * @param {Sentences} say
 */
function foundBy(answer, say) {
  const { rows, rows_one_by_one: alone } = answer.diagnostics;
  return partOf(
    "How it was found",
    factsOf([
      [answer.certificate?.proved ? "proved" : "not proved", say.proof],
      ["rows evaluated", rowsWords(rows, alone)],
      ["work", say.work],
      ["coverage", say.coverage],
      ["scored by", `${answer.rule} · ${answer.terminator} · ${answer.signature?.precision ?? ""}`],
      ["model", h("bdi", {}, answer.signature?.model ?? answer.model)],
    ]),
  );
}

/**
 * @param {any} answer
 * @param {Context} context
 */
function trieOf(answer, context) {
  const folded = context.request?.body.fold ?? [];
  const onFold = (/** @type {number[]} */ fold) => void context.again({ fold });
  return partOf("The texts as one tree", figureOf(answer.drawing.trie, { name: "trie", folded, onFold }));
}

/**
 * Return a note on choices that the model hardly says, with what it wanted and two remedies.
 *
 * @param {any} answer
 * @param {string} best the option that is the likely remedy
 * @param {Context} context
 */
function lowMass(answer, best, context) {
  const choices = answer.choices.map((/** @type {Choice} */ one) => one.text);
  /** @type {[string, () => void][]} */
  const remedies = [];
  if (!choices.some((/** @type {string} */ one) => /^\s/.test(one)))
    remedies.push([
      context.request?.body.choices ? "Put a space before each choice" : "Put a space before each text",
      setter(context, "delimiter", " "),
    ]);
  if (context.hasChat && context.request?.body.user === undefined)
    remedies.push(["Ask as a user, in the chat template", setter(context, "mode", "user")]);
  if (best === "user") remedies.reverse();
  return massNote(
    "The model expects something else than these choices.",
    ["coverage", answer.coverage],
    wantedOf(answer),
    remedies,
    toleranceOf(answer),
  );
}

/**
 * Return what the model would say in the place of the choices, with log-probabilities, best first.
 *
 * @param {any} answer of a select, or the record of a slot
 */
export function wantedOf(answer) {
  const healed = answer.healed ?? "";
  /** @type {[string, number][]} */
  const wanted = (answer.top_tokens ?? [])
    .filter((/** @type {any} */ one) => one.piece.startsWith(healed) && one.piece !== healed)
    .map((/** @type {any} */ one) => [one.piece.slice(healed.length), one.logp - (answer.log_heal ?? 0)]);
  const special = healed ? [] : (answer.top_tokens ?? []).filter((/** @type {any} */ one) => one.piece === "");
  for (const one of special) wanted.push([one.spelling ?? "", one.logp]);
  return wanted.sort(([, a], [, b]) => b - a);
}

/**
 * Return the tolerance by which all probabilities of an answer are written, in nats.
 *
 * @param {any} answer
 */
export function toleranceOf(answer) {
  return answer.signature?.tolerance || UNKNOWN;
}

/**
 * Return a note on a set of texts that the model hardly says.
 *
 * @param {string} claim
 * @param {[string, number]} mass the name and the value of what it has of the model's belief
 * @param {[string, number][]} wanted what the model would say, with log-probabilities, best first
 * @param {[string, () => void][]} remedies
 * @param {number} [tolerance] of the probabilities, in nats
 */
export function massNote(claim, [name, mass], wanted, remedies, tolerance = UNKNOWN) {
  const some = wanted.slice(0, 5).flatMap(([text, logp], at) => {
    const p = number(Math.exp(logp), percent(Math.exp(logp), tolerance), "wanted");
    return [at ? ", " : " ", h("span", { class: "wanted" }, textOf(text), " ", p)];
  });
  const share = number(mass, percent(mass, tolerance), name);
  const said = [h("strong", {}, `${claim} `), "All together have ", share, " of its belief."];
  return note("low-mass", some.length ? [...said, " It wanted", ...some, "."] : said, remedies);
}

/**
 * Return the rows that were evaluated, beside those that one text after the other takes.
 *
 * @param {number} rows
 * @param {number} alone
 */
export function rowsWords(rows, alone) {
  const [some, all] = [number(rows, whole(rows), "rows"), number(alone, whole(alone), "rows one by one")];
  return h("span", {}, some, " instead of ", all, " one by one");
}

/**
 * Return the choices as a table, best first, with a filter where there are many.
 *
 * @param {any} answer
 */
function choicesOf(answer) {
  /** @type {[Choice, number][]} */
  const rows = answer.choices.map((/** @type {Choice} */ one, /** @type {number} */ at) => [one, at]);
  const worth = (/** @type {Choice} */ one) => one.score ?? one.logp_upper ?? -Infinity;
  const isOpen = (/** @type {Choice} */ one) => one.score === null || one.score === undefined;
  rows.sort(([a, i], [b, j]) => Number(isOpen(a)) - Number(isOpen(b)) || worth(b) - worth(a) || i - j);
  const tolerance = answer.signature?.tolerance ?? 0;
  const body = h("tbody");
  const places = rows.map((one, at) => /** @type {const} */ ([at, ...one]));
  const filter = filtered(
    places,
    ([, one]) => one.text,
    ([place, one, at]) => rowOf(answer, place, one, at, tolerance),
    body,
  );
  const heads = [
    "#",
    "choice",
    "share of the set",
    answer.rule === "joint" ? "log-probability" : "score",
    "step by step",
    "marks",
  ];
  return partOf(`All ${whole(rows.length)} choices`, filter, tableOf(heads, body));
}

/**
 * @param {any} answer
 * @param {number} place
 * @param {Choice} one
 * @param {number} at its index in the request
 * @param {number} tolerance
 */
function rowOf(answer, place, one, at, tolerance) {
  const isOpen = one.score === null || one.score === undefined;
  const isWinner = at === answer.winner;
  // The drawings mark a tie in the same way.
  const isTied = answer.is_tie && one.score === answer.choices[answer.winner]?.score;
  const low = one.probability_low ?? one.probability ?? 0;
  const high = one.probability_high ?? low;
  // A share beside others is never exactly 0 or 1; a float may be.
  const shareTolerance = answer.choices.length > 1 ? toleranceOf(answer) : 0;
  const value = one.logp ?? one.logp_upper;
  const shown = percentBetween(low, high, shareTolerance);
  const marks = [
    isTied ? ["=", "shares the first place"] : isWinner && ["★", "winner"],
    at === answer.greedy && ["~", "masked greedy"],
    isOpen && ["×", "pruned"],
    one.duplicate_of !== null && one.duplicate_of !== undefined && ["≡", `same as choice ${one.duplicate_of + 1}`],
  ];
  const measured = answer.rule === "joint" ? value : (one.score ?? null);
  const local = one.logp_local;
  return h(
    "tr",
    { class: isWinner || isTied ? "wins" : null },
    h("td", { class: "place" }, String(place + 1)),
    h("th", { scope: "row" }, textOf(one.text, 200)),
    h("td", { class: "share" }, barOf(low, high), number(isOpen ? high : one.probability, shown, "probability")),
    h(
      "td",
      { class: "number", "data-label": answer.rule === "joint" ? "log-probability" : "score" },
      number(measured, measured === null ? "–" : (isOpen ? "≤ " : "") + score(measured, tolerance, isOpen), "logp"),
    ),
    h(
      "td",
      { class: "number", "data-label": "step by step" },
      local === null || local === undefined
        ? "–"
        : number(Math.exp(local), percent(Math.exp(local), shareTolerance), "step by step"),
    ),
    h(
      "td",
      { class: "marks" },
      marks
        .filter((one) => Array.isArray(one))
        .map(([sign, words]) => h("span", { class: "tag" }, h("span", { "aria-hidden": "true" }, `${sign} `), words)),
    ),
  );
}
