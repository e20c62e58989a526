// @ts-check
/**
 * The tab Decide: typed questions about a state, as forms or as JSON.
 *
 * The JSON of all questions is the state of the tab. A form shows what forms can show, and keeps
 * the other fields of its question as they were.
 */

import { figureOf } from "./drawing.js";
import { UNKNOWN, barOf, errorOf, number, percent, points, score, textOf, whole } from "./format.js";
import {
  FieldError,
  area,
  controlsOf,
  factsOf,
  fill,
  filtered,
  h,
  labelled,
  optionsOf,
  parseJson,
  readOptions,
  setter,
  stateOf,
} from "./form.js";
import { massNote, rowsWords, tieWords } from "./select.js";
import { note } from "./states.js";

/** @typedef {import("./main.js").Context} Context */
/** @typedef {Record<string, any>} Json */
/** @typedef {[string, number, boolean]} Row an option, its probability, and whether it is the answer */

const PATH = "/v1/decisions";
const LOW_MASS = 0.01;
/** What a tie is where probabilities are known within bounds alone, as from a served model. */
const CLOSE = "the first two may have the same probability within what is known of them";
const ALL_ORDERS = 4; // up to so many options, every order is asked
const TYPES = {
  choice: "one option",
  predicate: "is it true",
  score: "a level",
};

/** @type {Json} */
const QUESTIONS = {
  intent: {
    type: "choice",
    instructions: "What does the customer want?",
    choices: ["track order", "refund", "reset password"],
  },
  angry: { type: "predicate", instructions: "The customer is angry." },
  urgency: { type: "score", instructions: "How urgent is this?", levels: ["can wait", "this week", "today"] },
};

/** @type {import("./main.js").Tab} */
export const decide = {
  name: "decide",
  title: "Decide",
  lead: "What does the model answer to these questions about the text, and how sure is it?",
  isStream: false,
  example: { state: "My parcel has not come, and this is the third time!", questions: JSON.stringify(QUESTIONS) },
  build(form, context) {
    const state = area("state", { rows: 3, placeholder: "What the questions are about" });
    const mode = h(
      "select",
      { name: "mode", "aria-label": "How the text is read" },
      h("option", { value: "" }, "as a text"),
      h("option", { value: "json" }, "as JSON: data, or a list of messages"),
    );
    const box = labelled("Text", state);
    box.classList.add("prompt", "wide");
    state.before(mode);
    form.append(box, questionsField(), optionsOf(context.options[PATH]));
  },
  read(form) {
    const state = typed(form);
    const options = readOptions(form);
    const questions = editorOf(form).read();
    const text = String(state.state ?? "");
    const about = state.mode === "json" ? parseJson("state", text) : text;
    return {
      path: PATH,
      body: { state: about, questions, ...options, drawing: true },
      state: { ...state, questions: JSON.stringify(questions) },
    };
  },
  write(form, state) {
    fill(form, state);
    editorOf(form).write(String(state.questions ?? "{}"));
  },
  show,
  numbers: (answer) =>
    Object.entries(answer.answers).flatMap(([name, one]) =>
      rowsOf(one).map(
        ([text, p]) =>
          /** @type {import("./share.js").Told} */ ([
            `${name}: ${text}`,
            p,
            shareError(p, text, toldOf(one).tolerance),
          ]),
      ),
    ),
};

/**
 * Return an upper estimate of how far batching may move an option's probability, or null: the
 * option and the others may each move, and a text has no more tokens than bytes.
 *
 * @param {number} p
 * @param {string} text
 * @param {number | null | undefined} tolerance of one row, in nats
 */
function shareError(p, text, tolerance) {
  const error = errorOf(tolerance, new TextEncoder().encode(text).length);
  return error === null ? null : Math.max(2 * p * (1 - p) * error, Number.EPSILON);
}

/**
 * Return what is typed in a form, without the parts of its questions.
 *
 * @param {HTMLElement} form
 */
function typed(form) {
  return Object.fromEntries(Object.entries(stateOf(form)).filter(([name]) => !name.startsWith("q.")));
}

/** @typedef {{read: () => Json, write: (text: string) => void}} Editor */
/** @type {WeakMap<Element, Editor>} */
const EDITORS = new WeakMap();

/** @param {HTMLElement} form */
function editorOf(form) {
  return /** @type {Editor} */ (EDITORS.get(/** @type {Element} */ (form.querySelector(".questions"))));
}

/** Return the editor of the questions. */
function questionsField() {
  const forms = h("div", { class: "forms" });
  const json = area("q.json", { rows: 12 });
  json.dataset.path = "questions";
  const jsonField = labelled("Questions as JSON, by name", json);
  jsonField.hidden = true;
  const add = h("button", { type: "button", onclick: () => addQuestion() }, "Add a question");
  const swap = h("button", { type: "button", onclick: () => turn() }, "Edit as JSON");
  const buttons = h("p", { class: "remedies" }, add, swap);
  const box = h(
    "div",
    { class: "questions wide", role: "group", "aria-label": "Questions" },
    forms,
    jsonField,
    buttons,
  );
  const isJson = () => !jsonField.hidden;

  function addQuestion() {
    const names = fieldsets().map((one) => control(one, "name").value);
    let at = names.length + 1;
    while (names.includes(`q${at}`)) at += 1;
    const added = questionOf(`q${at}`, { type: "choice", instructions: "", choices: [] });
    forms.append(added);
    control(added, "instructions").focus();
  }
  function fieldsets() {
    return /** @type {HTMLFieldSetElement[]} */ ([...forms.children]);
  }
  function turn() {
    if (isJson()) {
      try {
        write(json.value);
      } catch (error) {
        json.setCustomValidity(/** @type {Error} */ (error).message);
        json.reportValidity();
        json.setCustomValidity("");
        return;
      }
    } else json.value = JSON.stringify(read(), null, 2);
    jsonField.hidden = !jsonField.hidden;
    forms.hidden = add.hidden = isJson();
    swap.textContent = isJson() ? "Edit as forms" : "Edit as JSON";
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }
  function read() {
    if (isJson()) return parseJson("questions", json.value);
    /** @type {Json} */
    const questions = {};
    for (const one of fieldsets()) {
      const name = control(one, "name").value;
      for (const part of controlsOf(one)) part.dataset.path = `questions.${name}.${part.name.slice(2)}`;
      control(one, "name").dataset.path = `questions.${name}`;
      if (name in questions) throw new FieldError(`questions.${name}`, `two questions have the name ${name}`);
      questions[name] = readQuestion(one);
    }
    return questions;
  }
  function write(/** @type {string} */ text) {
    const questions = parseJson("questions", text);
    const some =
      questions && typeof questions === "object" && !Array.isArray(questions) ? Object.entries(questions) : [];
    forms.replaceChildren(...some.map(([name, one]) => questionOf(name, one && typeof one === "object" ? one : {})));
    if (isJson()) json.value = JSON.stringify(questions, null, 2);
  }
  EDITORS.set(box, { read, write });
  return box;
}

/**
 * @param {HTMLElement} question
 * @param {string} part
 */
function control(question, part) {
  return /** @type {import("./form.js").Control} */ (question.querySelector(`[name="q.${part}"]`));
}

/** @type {WeakMap<Element, Json>} fields of a question that forms do not show */
const HIDDEN = new WeakMap();
/** @type {WeakMap<Element, {text: string, value: unknown}>} instructions that are JSON, and how they are shown */
const INSTRUCTIONS = new WeakMap();

/**
 * Return the form of a question.
 *
 * @param {string} name
 * @param {Json} question
 */
function questionOf(name, question) {
  const { type = "choice", instructions = "", choices, levels, multi_label: several = false, ...rest } = question;
  const kind = type === "noul" ? "predicate" : type;
  const title = h("input", { type: "text", name: "q.name", autocomplete: "off", spellcheck: "false", dir: "auto" });
  title.value = name;
  const menu = h(
    "select",
    { name: "q.type" },
    Object.entries(TYPES).map(([value, words]) => h("option", { value }, `${value}: ${words}`)),
  );
  menu.value = kind;
  const asked = area("q.instructions", {
    rows: 1,
    value: typeof instructions === "string" ? instructions : JSON.stringify(instructions),
  });
  const texts = area("q.options", { rows: 3, value: linesOf(kind === "score" ? levels : choices) });
  texts.dataset.lines = "";
  const tick = h("input", { type: "checkbox", name: "q.several" });
  tick.checked = several;
  const options = labelled("Options, one on a line", texts);
  const many = labelled("any number of them may fit", tick);
  const remove = h("button", { type: "button", class: "remove" }, "Remove");
  const box = h(
    "fieldset",
    { class: "question" },
    h("legend", { class: "quiet" }, `Question ${name}`),
    h("div", { class: "grid" }, labelled("Name", title), labelled("Asks for", menu)),
    labelled("Question", asked),
    options,
    h("div", { class: "ends" }, many, remove),
  );
  remove.addEventListener("click", () => {
    const next = /** @type {HTMLElement | null} */ (
      (box.nextElementSibling ?? box.previousElementSibling)?.querySelector(".remove") ??
        box.closest(".questions")?.querySelector("button")
    );
    const parent = box.parentElement;
    box.remove();
    next?.focus();
    parent?.dispatchEvent(new Event("input", { bubbles: true }));
  });
  const change = () => {
    options.hidden = menu.value === "predicate" || (menu.value === "score" && "low" in rest) || "criteria" in rest;
    many.hidden = menu.value !== "choice";
    /** @type {HTMLLabelElement} */ (options.querySelector("label")).textContent =
      menu.value === "score" ? "Levels from the lowest, one on a line" : "Options, one on a line";
    const isEach = menu.value === "choice" && tick.checked;
    /** @type {HTMLLabelElement} */ (asked.closest(".field")?.querySelector("label")).textContent =
      menu.value === "predicate" ? "Statement" : isEach ? "Statement about each {label}" : "Question";
  };
  menu.addEventListener("change", change);
  tick.addEventListener("change", change);
  change();
  HIDDEN.set(box, rest);
  if (typeof instructions !== "string") INSTRUCTIONS.set(asked, { text: asked.value, value: instructions });
  return box;
}

/**
 * Return options as lines of text, or as JSON where they are more than texts.
 *
 * @param {unknown} options
 */
function linesOf(options) {
  if (options === undefined) return "";
  const isPlain =
    Array.isArray(options) &&
    options.every((one) => typeof one === "string" && one !== "" && !/[\n]/.test(one)) &&
    !/^\s*[[{]/.test(options[0] ?? "");
  return isPlain ? options.join("\n") : JSON.stringify(options);
}

/**
 * Return the question of a form as the server takes it.
 *
 * @param {HTMLFieldSetElement} box
 */
function readQuestion(box) {
  const type = control(box, "type").value;
  const text = control(box, "options").value;
  /** @type {Json} */
  const question = { type, ...HIDDEN.get(box) };
  const asked = control(box, "instructions");
  const given = INSTRUCTIONS.get(asked);
  if (asked.value) question.instructions = asked.value === given?.text ? given.value : asked.value;
  const isShown = !(/** @type {HTMLElement} */ (control(box, "options").closest(".field")).hidden);
  const list = type === "score" ? "levels" : "choices";
  if (isShown) {
    question[list] = optionsFrom(text);
    const texts = control(box, "options");
    texts.dataset.path = texts.dataset.path?.replace(/options$/, list);
  }
  const tick = /** @type {HTMLInputElement} */ (control(box, "several"));
  if (type === "choice" && tick.checked) question.multi_label = true;
  return question;
}

/** @param {string} text */
function optionsFrom(text) {
  if (/^\s*[[{]/.test(text)) {
    try {
      return JSON.parse(text);
    } catch {
      // then it is a line that begins so
    }
  }
  return text.split("\n").filter((one) => one !== "");
}

/**
 * Show the answers, question by question.
 *
 * @param {any} answer
 * @param {HTMLElement} place
 * @param {Context} context
 * @returns {import("./main.js").Outcome}
 */
function show(answer, place, context) {
  const questions = context.request?.body.questions ?? {};
  const entries = Object.entries(/** @type {Record<string, any>} */ (answer.answers));
  const bars = answer.drawing?.bars;
  const heads = [...(bars?.outline ?? [])];
  const some = entries.map(([name, one]) => {
    const drawn = heads.splice(0, one.type === "multi_label" ? Object.keys(one.probabilities).length : 1);
    return sectionOf(name, one, questions[name] ?? {}, drawn, context);
  });
  const isAveraged = Boolean(context.request?.body.permutations);
  const ask = () => void context.again({ permutations: ordersOf(questions) });
  const hint = isAveraged
    ? "The answers are averages over orders of the options."
    : "A model may prefer the option that is listed first.";
  place.replaceChildren(
    ...(answer.warnings ?? []).map((/** @type {string} */ one) => note("warning", [h("bdi", {}, String(one))])),
    bars ? figureOf(bars, { name: "answer-bars" }) : "",
    h(
      "div",
      { class: "answers" },
      some.map((one) => one.section),
    ),
    h(
      "p",
      { class: "remedies" },
      !isAveraged &&
        h("button", { type: "button", class: "orders", onclick: ask }, "Ask in other orders of the options"),
      h("span", { class: "hint" }, hint),
    ),
    factsOf([
      ["prompt tokens", number(answer.usage.input_tokens, whole(answer.usage.input_tokens), "input tokens")],
      ["model", h("bdi", {}, answer.model)],
    ]),
  );
  const states = some.map((one) => one.state);
  const state = states.includes("low-mass") ? "low-mass" : states.includes("tie") ? "tie" : "done";
  return { state, sentence: `${some.map((one) => one.sentence).join("; ")}.` };
}

/**
 * Return in which orders the options are asked: all of few, else as many as make it certain.
 *
 * @param {Json} questions
 */
function ordersOf(questions) {
  const counts = Object.values(questions).map(
    (one) => Object.keys(one.choices ?? one.levels ?? one.criteria ?? {}).length,
  );
  return Math.max(2, ...counts) <= ALL_ORDERS && !Object.values(questions).some((one) => "low" in one) ? "all" : "auto";
}

/**
 * Return the section of a question, and what it comes to.
 *
 * @param {string} name
 * @param {any} one the answer
 * @param {Json} question
 * @param {import("./drawing.js").Item[]} drawn what the picture has of it, with an item for each option
 * @param {Context} context
 */
function sectionOf(name, one, question, drawn, context) {
  const rows = rowsOf(one);
  const best = rows.find(([, , isBest]) => isBest);
  const isSeveral = one.type === "multi_label";
  const value = isSeveral ? one.choices.join(", ") || "none of them" : (best?.[0] ?? "");
  const told = toldOf(one);
  const mass = told.label_mass;
  const isLow = mass !== undefined && mass !== null && mass < LOW_MASS;
  const { instructions = "" } = question;
  const asked = typeof instructions === "string" ? instructions : JSON.stringify(instructions);
  const tolerance = told.tolerance || UNKNOWN;
  const isNear = !told.is_tie && typeof told.margin === "number" && told.margin < (told.tolerance ?? 0);
  // An item without numbers stands for options that are not drawn.
  const nDrawn = drawn.flatMap((head) => head.children).filter((option) => option.numbers.length).length;
  /** @type {[string, Node, string?][]} */
  const facts = [];
  if (mass !== undefined && mass !== null) {
    const share = number(mass, percent(mass, tolerance), "label mass");
    facts.push(["label mass", share, "how much of the model's belief the options hold"]);
  }
  if (one.confidence !== undefined) {
    facts.push(["confidence", number(one.confidence, percent(one.confidence, tolerance), "confidence")]);
  }
  if (one.type === "score") {
    const [low, high] = [0, rows.length - 1].map((at) => Object.keys(one.legend ?? {})[at] ?? at);
    const scale = `on the scale from ${low} (${rows[0]?.[0]}) to ${high} (${rows.at(-1)?.[0]})`;
    facts.push(["score", number(one.score, one.score.toFixed(2), "score"), scale]);
  }
  if (context.request?.body.permutations && told.spread !== undefined && told.spread !== null) {
    const words = told.order_dependent ? "another order has another winner" : "every order has this winner";
    const spread = number(told.spread, points(told.spread, told.tolerance), "spread");
    facts.push(["spread over orders", spread, words]);
  }
  if (told.rows !== undefined) facts.push(["rows evaluated", rowsWords(told.rows, told.rows_one_by_one)]);
  const section = h(
    "section",
    { class: "part decided", "aria-label": `Answer to ${name}` },
    h("h2", {}, h("bdi", {}, name), asked && h("span", { class: "asked" }, " ", h("bdi", {}, asked))),
    told.abstained && note("abstained", [h("strong", {}, "Abstained: "), h("bdi", {}, String(told.abstained))]),
    told.is_tie && note("tie", [h("strong", {}, "A tie. "), tieWords(told.margin > 0 ? CLOSE : null)]),
    isNear &&
      note("tie", [
        h("strong", {}, "Nearly a tie. "),
        "The first two are ",
        number(told.margin, `${score(told.margin, told.tolerance)} nats`, "margin"),
        " apart, less than what may move a row of this model (",
        number(told.tolerance, `${Number(told.tolerance.toPrecision(2))} nats`, "tolerance"),
        ").",
      ]),
    told.order_dependent && note("warning", ["The order of the options decides: another order has another winner."]),
    isLow && lowMass(told, context),
    h("p", { class: "decision" }, textOf(value)),
    factsOf(facts),
    (isSeveral || nDrawn < rows.length) && listOf(rows, tolerance, isSeveral),
  );
  return {
    section,
    state: isLow ? "low-mass" : told.is_tie || isNear ? "tie" : "done",
    sentence: `${name}: ${value}${best ? `, ${percent(best[1], tolerance)}` : ""}`,
  };
}

/**
 * Return all options of a question that has too many for the picture, or several answers.
 *
 * @param {Row[]} rows
 * @param {number} tolerance
 * @param {boolean} isOpen
 */
function listOf(rows, tolerance, isOpen) {
  const bars = h("ol", { class: "bars" });
  const rowOf = (/** @type {Row} */ [text, p, isBest]) =>
    h(
      "li",
      { class: isBest ? "wins" : null },
      h("span", { class: "label" }, textOf(text, 120)),
      barOf(p),
      number(p, percent(p, tolerance), "probability"),
    );
  const filter = filtered(rows, ([text]) => text, rowOf, bars);
  return h("details", { open: isOpen }, h("summary", {}, `All ${whole(rows.length)} options`), filter, bars);
}

/**
 * Return the diagnostics of an answer. Of several labels, those are told that hold for all: the
 * label that the model would hardly answer has the least mass.
 *
 * @param {any} one
 * @returns {Json}
 */
function toldOf(one) {
  if (one.type !== "multi_label") return one.diagnostics;
  const all = /** @type {Json[]} */ (Object.values(one.diagnostics));
  const { label_mass, top_tokens, tolerance } = all.sort((a, b) => a.label_mass - b.label_mass)[0];
  return { label_mass, top_tokens, tolerance };
}

/**
 * Return the options of an answer with their probabilities, and whether each is the answer.
 *
 * @param {any} one
 * @returns {Row[]}
 */
function rowsOf(one) {
  if (one.type === "noul")
    return [
      ["true", one.noul, one.noul >= 0.5],
      ["false", 1 - one.noul, one.noul < 0.5],
    ];
  const pairs = Object.entries(/** @type {Record<string, number>} */ (one.probabilities));
  if (one.type === "multi_label") return pairs.map(([text, p]) => [text, p, one.choices.map(String).includes(text)]);
  if (one.type === "score") {
    const best = Math.max(...pairs.map(([, p]) => p));
    const words = (/** @type {string} */ key) =>
      typeof one.legend[key] === "string" ? one.legend[key] : JSON.stringify(one.legend[key]);
    return pairs.sort(([a], [b]) => Number(a) - Number(b)).map(([key, p]) => [words(key), p, p === best]);
  }
  return pairs.sort(([, a], [, b]) => b - a).map(([text, p]) => [text, p, text === String(one.choice)]);
}

/**
 * Return a note on options that the model hardly says, with what it wanted and what may help.
 *
 * @param {Json} told its diagnostics
 * @param {Context} context
 */
function lowMass({ label_mass: mass, top_tokens: tokens, tolerance }, context) {
  const wanted = tokens.map((/** @type {any} */ token) => [token.token, token.logprob]);
  const asked = context.request?.body.template;
  /** @type {[string, () => void][]} */
  const remedies = [];
  if (context.hasChat && asked !== "chat")
    remedies.push(["Ask in the chat template", setter(context, "template", "chat")]);
  if (asked !== "base") remedies.push(["Ask on a plain page", setter(context, "template", "base")]);
  return massNote("The model would hardly say any of these.", ["label mass", mass], wanted, remedies, tolerance);
}
