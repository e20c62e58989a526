// @ts-check
/** The tab Grammar: the most probable of all texts of a grammar, proved while it is searched. */

import { number, percent, score, textOf } from "./format.js";
import { FieldError, area, fill, h, labelled, optionsOf, parseJson, partOf, readOptions, stateOf } from "./form.js";
import { promptFields, promptOf, showSelection } from "./select.js";

const PATH = "/v1/select";
/** Options that are about listed choices. */
const OF_CHOICES = new Set(["tokenizations", "prior"]);
const MOST_FOUND = 8;
/** @type {Record<string, {title: string, hint: string}>} */
const KINDS = {
  grammar: {
    title: "a grammar (GBNF)",
    hint: "The start rule is root. As in llama.cpp, rules refer to each other by name.",
  },
  regex: { title: "a regular expression", hint: "The whole text must match." },
  json_schema: { title: "a JSON Schema", hint: "The texts are the JSON values that the schema allows, on one line." },
};
const EXAMPLE =
  'root  ::= " " city (", " state)?\ncity  ::= "Chicago" | "Boston" | "New York" | "New Zealand"\nstate ::= "Illinois" | "Massachusetts" | "NY"';

/** @type {import("./main.js").Tab} */
export const grammar = {
  name: "grammar",
  title: "Grammar",
  lead: "Which text of a grammar does the model find most probable after the prompt, of all that the grammar allows?",
  isStream: true,
  example: { prompt: "Q: Which city in the United States comes to mind? A:", source: EXAMPLE },
  build(form, context) {
    const source = area("source", { rows: 6, placeholder: "The grammar" });
    source.dir = "ltr";
    const kind = h(
      "select",
      { name: "kind", "aria-label": "Kind of grammar" },
      Object.entries(KINDS).map(([value, { title }]) =>
        h("option", { value: value === "grammar" ? "" : value }, title),
      ),
    );
    const box = labelled("Grammar", source, KINDS.grammar.hint);
    const setKind = () => {
      const name = kind.value || "grammar";
      source.dataset.path = name;
      const hint = box.querySelector(".hint");
      if (hint) hint.textContent = KINDS[name].hint;
    };
    kind.addEventListener("input", setKind);
    form.addEventListener("filled", setKind);
    box.append(kind);
    form.append(
      ...promptFields(),
      box,
      optionsOf(context.options[PATH], (one) => !OF_CHOICES.has(one.path)),
    );
    setKind();
  },
  read(form) {
    const state = stateOf(form);
    const kind = String(state.kind ?? "grammar");
    const source = String(state.source ?? "");
    if (!source.trim()) throw new FieldError(kind, "the grammar is empty");
    const value = kind === "json_schema" ? parseJson(kind, source) : source;
    return { path: PATH, body: { ...promptOf(state), [kind]: value, ...readOptions(form), drawing: true }, state };
  },
  write(form, state) {
    fill(form, state);
    form.querySelector(".inputs")?.dispatchEvent(new Event("filled"));
  },
  show: (answer, place, context) => showSelection(answer, place, context, false),
  begin(place, context) {
    searches.set(place, { texts: [], model: context.model });
  },
  async news(event, pane) {
    const search = /** @type {Search} */ (searches.get(pane.place));
    if (event.type === "found")
      search.texts = [event, ...search.texts.filter((one) => one.text !== event.text)]
        .sort((a, b) => b.logp - a.logp)
        .slice(0, MOST_FOUND);
    const { tolerance } = await search.model;
    if (searches.get(pane.place) !== search) return; // another request has begun
    const rows = search.texts.map(({ text, logp }) =>
      h(
        "li",
        {},
        textOf(text, 120),
        " ",
        number(Math.exp(logp), percent(Math.exp(logp), tolerance), "found"),
        " · log-probability ",
        number(logp, score(logp, tolerance), "logp"),
      ),
    );
    pane.stream();
    pane.place.replaceChildren(
      partOf(
        "Best so far, not proved yet",
        rows.length ? h("ol", {}, rows) : h("p", {}, "No text has come to its end yet."),
      ),
    );
  },
  explain: (message, form) => caretOf(message, /** @type {HTMLTextAreaElement} */ (form.elements.namedItem("source"))),
};

/** @typedef {{texts: {text: string, logp: number}[], model: Promise<import("./main.js").Model>}} Search texts found, best first */
/** @type {WeakMap<HTMLElement, Search>} */
const searches = new WeakMap();

/**
 * Return the line that an error is about, with a caret under its column, or null. The cursor
 * goes there too.
 *
 * @param {string} message such as `grammar: line 2, column 7: …`
 * @param {HTMLTextAreaElement} source
 */
export function caretOf(message, source) {
  const place = /line (\d+), column (\d+)/.exec(message) ?? /:(\d+):(\d+):/.exec(message);
  if (!place) return null;
  const [line, column] = [Number(place[1]), Number(place[2])];
  const lines = source.value.split("\n");
  const text = lines[line - 1];
  if (text === undefined) return null;
  const before = [...text].slice(0, column - 1).join("");
  const at = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + before.length;
  source.setSelectionRange(at, at + 1);
  const begin = before.slice(-60);
  const number = `${line} │ `;
  const caret = " ".repeat(number.length + [...begin].length) + "^";
  return h(
    "pre",
    { class: "caret", dir: "ltr" },
    h("bdi", {}, number, begin, text.slice(before.length, before.length + 40)),
    "\n",
    caret,
  );
}
