// @ts-check
/** The tab Generate: several texts side by side, each token tinted by its log-probability. */

import { UNKNOWN, errorOf, number, percent, score, textOf, visible, whole } from "./format.js";
import { fill, h, optionField, optionsOf, readOptions, stateOf } from "./form.js";
import { promptFields } from "./select.js";

const PATH = "/v1/completions";
const CHATS = "/v1/chat/completions";
const ALTERNATIVES = 5;
/** Options that are not folded away. */
const FIRST = new Set(["n", "max_tokens", "temperature", "seed"]);
/** Least probabilities of the tints, from the surest on, as notebooks have them. */
export const TINTS = [0.9, 0.5, 0.1, 0.01];

/** @typedef {{text: string, logp: number | null, others: [string, number][]}} Token */
/** @typedef {{tokens: Token[], rest: string, finish: string}} Column `rest` is text without tokens */

/** @type {import("./main.js").Tab} */
export const generate = {
  name: "generate",
  title: "Generate",
  lead: "What does the model write after the prompt, and how sure was it of each token?",
  isStream: true,
  example: { prompt: "Once upon a time", n: "3", max_tokens: "24", temperature: "1", seed: "1" },
  build(form, context) {
    const options = context.options[PATH];
    const first = h("div", { class: "grid" }, options.filter((one) => FIRST.has(one.path)).map(optionField));
    form.append(
      ...promptFields(),
      first,
      optionsOf(options, (one) => !FIRST.has(one.path)),
    );
  },
  read(form) {
    const state = stateOf(form);
    const prompt = String(state.prompt ?? "");
    const options = readOptions(form);
    if (state.mode === "user")
      return {
        path: CHATS,
        body: { messages: [{ role: "user", content: prompt }], ...options, logprobs: true, top_logprobs: ALTERNATIVES },
        state,
      };
    return { path: PATH, body: { prompt, ...options, logprobs: ALTERNATIVES }, state };
  },
  write: fill,
  gather(body, context) {
    /** @type {any} */
    let first = null;
    /** @type {Column[]} */
    const columns = [];
    const most = body.max_tokens ?? context.options[PATH].find((one) => one.path === "max_tokens")?.default;
    const result = () => ({ ...first, columns: columns.filter(Boolean), most: (body.n ?? 1) * most });
    return {
      add(event) {
        first ??= event;
        for (const choice of event.choices ?? [])
          addTo((columns[choice.index] ??= { tokens: [], rest: "", finish: "" }), choice);
      },
      result,
      end: async () => ({ ...result(), tolerance: (await context.model).tolerance }),
    };
  },
  news(_event, pane, gathered) {
    pane.stream();
    pane.progress(nTokens(gathered), gathered.most, "token", "at most ");
    show(gathered, pane.place);
  },
  show(answer, place) {
    show(answer, place);
    return { state: "done", sentence: `${answer.columns.length} texts, ${whole(nTokens(answer))} tokens.` };
  },
  numbers: (answer) =>
    answer.columns.map((/** @type {Column} */ one, /** @type {number} */ at) => [
      `text ${at + 1}`,
      logpOf(one),
      answer.tolerance > UNKNOWN ? errorOf(answer.tolerance, one.tokens.length) : null,
    ]),
};

/** @param {{columns: Column[]}} answer @returns {number} how many tokens it has */
function nTokens({ columns }) {
  return columns.reduce((sum, one) => sum + one.tokens.length, 0);
}

/**
 * Add a part of a choice, of completions or of chats, to its column.
 *
 * @param {Column} column
 * @param {any} choice
 */
function addTo(column, choice) {
  const logprobs = choice.logprobs;
  if (choice.finish_reason) column.finish = choice.finish_reason;
  if (Array.isArray(logprobs?.content)) {
    for (const one of logprobs.content) {
      const others = (one.top_logprobs ?? []).map(
        (/** @type {any} */ other) => /** @type {[string, number]} */ ([other.token, other.logprob]),
      );
      column.tokens.push({ text: one.token, logp: one.logprob, others });
    }
  } else if (Array.isArray(logprobs?.tokens)) {
    logprobs.tokens.forEach((/** @type {string} */ text, /** @type {number} */ at) => {
      column.tokens.push({
        text,
        logp: logprobs.token_logprobs[at],
        others: Object.entries(logprobs.top_logprobs?.[at] ?? {}),
      });
    });
  } else column.rest += choice.text ?? choice.delta?.content ?? "";
}

/** @param {Column} column @returns {number} the log-probability of all its tokens */
function logpOf(column) {
  return column.tokens.reduce((sum, one) => sum + (one.logp ?? 0), 0);
}

/**
 * Show the columns of an answer; a token shows its alternatives below its column.
 *
 * @param {{columns: Column[], tolerance?: number}} answer
 * @param {HTMLElement} place
 */
function show(answer, place) {
  const columns = answer.columns.map((one, at) => columnOf(one, at, answer.tolerance ?? UNKNOWN));
  const legend = h(
    "p",
    { class: "legend" },
    [...TINTS.map((one) => `from ${percent(one)}`), "less"].map((words, at) =>
      h("span", { class: `token tint${at}` }, words),
    ),
  );
  place.replaceChildren(h("h2", {}, "Texts"), legend, h("div", { class: "columns" }, columns));
}

/**
 * @param {Column} column
 * @param {number} at
 * @param {number} tolerance of the model
 */
function columnOf(column, at, tolerance) {
  const detail = h("div", { class: "alternatives", "aria-live": "polite" });
  const buttons = column.tokens.map((one, place) => tokenOf(one, place === 0, tolerance));
  buttons.forEach((button, place) => {
    button.addEventListener("click", () => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
      detail.replaceChildren(...alternativesOf(column.tokens[place], tolerance));
    });
  });
  const text = h(
    "div",
    { class: "tokens", role: "group", "aria-label": `Tokens of text ${at + 1}, one by the arrow keys`, dir: "auto" },
    buttons,
    column.rest ? h("bdi", {}, column.rest) : null,
  );
  text.addEventListener("keydown", (event) => {
    const from = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const to = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: buttons.length - 1 }[event.key];
    const next = to === undefined || from < 0 ? undefined : buttons[to];
    if (!next) return;
    event.preventDefault();
    buttons[from].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  const logp = logpOf(column);
  const facts = h(
    "p",
    { class: "hint" },
    number(column.tokens.length, `${whole(column.tokens.length)} tokens`, "tokens"),
    " · log-probability ",
    number(logp, score(logp, tolerance), "logp"),
    column.finish ? ` · ended by ${column.finish}` : "",
  );
  return h("section", { class: "column", "aria-label": `Text ${at + 1}` }, text, facts, detail);
}

/**
 * @param {Token} token
 * @param {boolean} isFirst whether the Tab key reaches it
 * @param {number} tolerance of the model
 */
function tokenOf(token, isFirst, tolerance) {
  const p = token.logp === null ? 1 : Math.exp(token.logp);
  const tint = TINTS.findIndex((one) => p >= one);
  const label = `${visible(token.text)}, ${percent(p, tolerance)}`;
  return h(
    "button",
    {
      type: "button",
      class: `token tint${tint < 0 ? TINTS.length : tint}`,
      tabindex: isFirst ? "0" : "-1",
      "aria-label": label,
      "aria-pressed": "false",
    },
    textOf(token.text, 60),
  );
}

/**
 * Return what could have come instead of a token.
 *
 * @param {Token} token
 * @param {number} tolerance of the model
 * @returns {Node[]}
 */
function alternativesOf(token, tolerance) {
  const rows = token.others.map(([text, logp]) =>
    h(
      "tr",
      { class: text === token.text ? "wins" : null },
      h("th", { scope: "row" }, textOf(text, 40)),
      h("td", { class: "number" }, number(Math.exp(logp), percent(Math.exp(logp), tolerance), "alternative")),
    ),
  );
  const own =
    token.logp === null
      ? ""
      : [" with ", number(Math.exp(token.logp), percent(Math.exp(token.logp), tolerance), "token")];
  return [
    h("p", { class: "hint" }, textOf(token.text, 60), own, ", where the most probable tokens were:"),
    h("table", {}, h("tbody", {}, rows)),
  ];
}
