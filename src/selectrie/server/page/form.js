// @ts-check
/**
 * Elements and forms, made without HTML in strings.
 *
 * A control that is an option of the call has `data-option`; its path in the body is in
 * `data-path`, as the server names it in an error. What is left at its default is not sent.
 */

import { whole } from "./format.js";

/**
 * @typedef {object} Option An option of a call, as `options.json` describes it.
 * @property {string} path
 * @property {string} kind
 * @property {string} help
 * @property {string[]} [values]
 * @property {number} [minimum]
 * @property {number} [exclusiveMinimum]
 * @property {number} [maximum]
 * @property {string | number | boolean} [default]
 */
/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control */
/** @typedef {string | Node | null | undefined | false} Child */

/** An input that cannot be sent as it is. */
export class FieldError extends Error {
  /**
   * @param {string} field path of the field in the body
   * @param {string} message
   */
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

/**
 * Return an element. Attributes that begin with `on` are listeners; false and null leave one out.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/**
 * Return a part of an answer below its title.
 *
 * @param {string} title
 * @param {...(Child | Child[])} children
 */
export function partOf(title, ...children) {
  return h("section", { class: "part" }, h("h2", {}, title), ...children);
}

/**
 * Return names with their values; a value that is empty is left out with its name.
 *
 * @param {[string, Child, string?][]} facts name, value, and what the value means
 * @param {string} [kind] their class
 */
export function factsOf(facts, kind = "") {
  const shown = facts.filter(([, value]) => value);
  return h(
    "dl",
    { class: "facts" },
    shown.map(([name, value, meaning]) =>
      h(
        "div",
        { class: kind },
        h("dt", {}, name),
        h("dd", {}, value, meaning && h("span", { class: "hint" }, ` ${meaning}`)),
      ),
    ),
  );
}

/**
 * Return a table of choices.
 *
 * @param {string[]} heads
 * @param {HTMLTableSectionElement} body
 */
export function tableOf(heads, body) {
  const head = heads.map((one) => h("th", { scope: "col" }, one));
  return scroller("The choices", "", h("table", { class: "choices" }, h("thead", {}, h("tr", {}, head)), body));
}

/**
 * Return what a remedy does: it sets a control and runs the tab.
 *
 * @param {import("./main.js").Context} context
 * @param {string} name of the control
 * @param {string} value
 */
export function setter(context, name, value) {
  return () => {
    const control = /** @type {Control} */ (context.form.elements.namedItem(name));
    control.value = value;
    control.dispatchEvent(new Event("input", { bubbles: true }));
    void context.run();
  };
}

const sized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.setAttribute("tabindex", "0");
    else target.removeAttribute("tabindex");
  }
});

/**
 * Return a box that scrolls sideways where its content is too wide, also by the keyboard.
 *
 * @param {string} label what it holds
 * @param {string} kind its class
 * @param {...Element} children
 */
export function scroller(label, kind, ...children) {
  const box = h("div", { class: `scroll ${kind}`, role: "group", "aria-label": label }, children);
  sized.observe(box);
  return box;
}

let counted = 0;
/** Return an id that no other element has. */
export function freshId() {
  counted += 1;
  return `e${counted}`;
}

/**
 * Return a labelled control with its hint.
 *
 * @param {string} label
 * @param {Control} control
 * @param {string} [hint]
 * @returns {HTMLElement}
 */
export function labelled(label, control, hint = "") {
  control.id ||= freshId();
  const note = hint ? h("p", { class: "hint", id: `${control.id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  const isTick = control instanceof HTMLInputElement && control.type === "checkbox";
  const name = h("label", { for: control.id }, label);
  return h("div", { class: isTick ? "field tick" : "field" }, isTick ? [control, name] : [name, control], note);
}

/**
 * Return a text area that grows with its text, up to a bound that CSS sets.
 *
 * @param {string} path
 * @param {{rows?: number, placeholder?: string, value?: string}} [given]
 * @returns {HTMLTextAreaElement}
 */
export function area(path, { rows = 2, placeholder = "", value = "" } = {}) {
  const control = h("textarea", {
    name: path,
    "data-path": path,
    rows,
    placeholder,
    dir: "auto",
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
  });
  control.value = value;
  control.addEventListener("input", () => fit(control));
  return control;
}

const LARGE = 20_000; // characters above which a browser takes seconds to wrap lines or to find a direction
const RIGHT_TO_LEFT = /^[^\p{L}]*[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/u;

/**
 * Let a text area stay quick with a large text: its direction is then found here.
 *
 * @param {Control} control
 */
function fit(control) {
  const isLarge = control.value.length > LARGE;
  if (
    control instanceof HTMLTextAreaElement &&
    control.classList.toggle("large", isLarge) !== (control.dir !== "auto")
  ) {
    control.dir = !isLarge ? "auto" : RIGHT_TO_LEFT.test(control.value.slice(0, LARGE)) ? "rtl" : "ltr";
  }
}

/**
 * Return the control of an option, empty at its default, which is shown.
 *
 * @param {Option} option
 * @returns {HTMLElement}
 */
export function optionField(option) {
  const named = { name: option.path, "data-path": option.path, "data-option": option.kind };
  const standard = option.default === undefined ? "" : String(option.default);
  const label = (option.path.split(".").pop() ?? option.path).replaceAll("_", " ");
  const isNumber = option.kind === "integer" || option.kind === "number";
  const title = option.path === "rule.name" ? "rule" : label;
  const values = option.kind === "boolean" ? ["true", "false"] : isNumber ? undefined : option.values;
  if (values) {
    const nameOf = (/** @type {string} */ value) => ({ true: "yes", false: "no" })[value] ?? value;
    const first = h("option", { value: "" }, standard ? `${nameOf(standard)} (default)` : "not set (default)");
    const others = values.filter((one) => one !== standard).map((one) => h("option", { value: one }, nameOf(one)));
    return labelled(title, h("select", named, first, others), option.help);
  }
  if (option.kind === "texts" || option.kind === "object") {
    const control = area(option.path, {
      placeholder: option.kind === "object" ? "{…} as JSON" : "one on a line; \\n is a line end",
    });
    if (option.kind === "texts") control.dataset.lines = "";
    control.dataset.option = option.kind;
    return labelled(title, control, option.help);
  }
  const bounds = [
    Number.isSafeInteger(option.minimum ?? 0) && option.minimum !== undefined && `at least ${option.minimum}`,
    option.exclusiveMinimum !== undefined && `above ${option.exclusiveMinimum}`,
    option.maximum !== undefined && `at most ${option.maximum}`,
  ].filter(Boolean);
  const input = h("input", {
    ...named,
    type: "text",
    inputmode: isNumber ? (option.kind === "integer" ? "numeric" : "decimal") : null,
    placeholder: standard === "" ? (isNumber ? "not set (default)" : "none (default)") : `${standard} (default)`,
    dir: "auto",
    autocomplete: "off",
    spellcheck: "false",
  });
  const also = option.values ? `; or ${option.values.join(", ")}` : "";
  return labelled(title, input, option.help + (bounds.length ? ` A number, ${bounds.join(", ")}${also}.` : ""));
}

/**
 * Return all options of a call, folded away.
 *
 * @param {Option[]} options
 * @param {(option: Option) => boolean} [filter] which of them
 * @returns {HTMLDetailsElement}
 */
export function optionsOf(options, filter = () => true) {
  const changed = h("span", { class: "count" });
  const box = h(
    "details",
    { class: "options" },
    h("summary", {}, "Options ", changed),
    h("div", { class: "grid" }, options.filter(filter).map(optionField)),
  );
  const count = () => {
    const set = controlsOf(box).filter((one) => one.value !== "").length;
    changed.textContent = set ? `${set} changed` : "all at their defaults";
  };
  box.addEventListener("input", count);
  box.addEventListener("filled", count);
  count();
  return box;
}

const MOST_ROWS = 200;

/**
 * Fill a place with rows, 200 at most, and return a filter of them where there are more.
 *
 * @template T
 * @param {T[]} items
 * @param {(item: T) => string} textOf what the filter looks in
 * @param {(item: T) => Node} rowOf
 * @param {Element} place
 * @returns {Element[]}
 */
export function filtered(items, textOf, rowOf, place) {
  const said = h("p", { class: "hint" });
  const filter = h("input", { type: "search", placeholder: "a part of the text" });
  const show = () => {
    const wanted = filter.value.toLowerCase();
    const found = items.filter((one) => textOf(one).toLowerCase().includes(wanted));
    place.replaceChildren(...found.slice(0, MOST_ROWS).map(rowOf));
    said.textContent = `${whole(Math.min(found.length, MOST_ROWS))} of ${whole(found.length)} shown`;
  };
  filter.addEventListener("input", show);
  show();
  return items.length > MOST_ROWS ? [labelled("Filter", filter), said] : [];
}

/**
 * Return the named controls of a form or a part of one.
 *
 * @param {ParentNode} place
 * @returns {Control[]}
 */
export function controlsOf(place) {
  return /** @type {Control[]} */ ([...place.querySelectorAll("input[name], select[name], textarea[name]")]);
}

/**
 * Return what is typed in a form, by the names of its controls; what is empty is left out.
 *
 * @param {ParentNode} form
 * @returns {Record<string, string | boolean>}
 */
export function stateOf(form) {
  /** @type {Record<string, string | boolean>} */
  const state = {};
  for (const one of controlsOf(form)) {
    if (one instanceof HTMLInputElement && one.type === "checkbox") {
      if (one.checked !== one.defaultChecked) state[one.name] = one.checked;
    } else if (one instanceof HTMLInputElement && one.type === "radio") {
      if (one.checked && !one.defaultChecked) state[one.name] = one.value;
    } else if (one.value !== "") state[one.name] = one.value;
  }
  return state;
}

/**
 * Fill a form with a state that `stateOf` returned.
 *
 * @param {ParentNode} form
 * @param {Record<string, any>} state
 */
export function fill(form, state) {
  for (const one of controlsOf(form)) {
    const value = state[one.name];
    if (one instanceof HTMLInputElement && one.type === "checkbox") one.checked = value ?? one.defaultChecked;
    else if (one instanceof HTMLInputElement && one.type === "radio") {
      one.checked = value === undefined ? one.defaultChecked : one.value === value;
    } else {
      one.value = value ?? "";
      fit(one);
    }
  }
  for (const box of form.querySelectorAll("details.options")) box.dispatchEvent(new Event("filled"));
}

/**
 * Return the options of a form that are not at their defaults, as fields of a body.
 *
 * @param {ParentNode} form
 * @returns {Record<string, any>}
 */
export function readOptions(form) {
  /** @type {Record<string, any>} */
  const body = {};
  for (const one of controlsOf(form)) {
    const path = one.dataset.path ?? one.name;
    if (one.dataset.option !== undefined && one.value !== "")
      setAt(body, path, parse(one.dataset.option, path, one.value));
  }
  const rule = body.rule;
  if (rule && typeof rule === "object")
    body.rule = Object.keys(rule).join() === "name" ? rule.name : { name: "joint", ...rule };
  return body;
}

/**
 * Return the texts that stand on the lines of a text; empty lines are none.
 *
 * @param {string} text with `\\n`, `\\t` and `\\\\` for a line end, a tab and a backslash
 * @returns {string[]}
 */
export function readLines(text) {
  const shown = /** @type {Record<string, string>} */ ({ n: "\n", t: "\t", "\\": "\\" });
  const lines = text.split("\n").filter((one) => one !== "");
  return lines.map((one) => one.replace(/\\([nt\\])/g, (_, letter) => shown[letter]));
}

/**
 * @param {string} kind
 * @param {string} path
 * @param {string} text
 */
function parse(kind, path, text) {
  if (kind === "boolean") return text === "true" ? true : text === "false" ? false : text;
  if (kind === "texts") return readLines(text);
  if (kind === "object") return parseJson(path, text);
  if (kind !== "integer" && kind !== "number") return text;
  const value = Number(text);
  return Number.isFinite(value) && text.trim() ? value : text; // the server says what it expects
}

/**
 * Return the value of a text of JSON; raise an error at a field for another text.
 *
 * @param {string} path
 * @param {string} text
 */
export function parseJson(path, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FieldError(path, `this is not JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/**
 * @param {Record<string, any>} body
 * @param {string} path
 * @param {unknown} value
 */
function setAt(body, path, value) {
  const keys = path.split(".");
  const last = /** @type {string} */ (keys.pop());
  let place = body;
  for (const key of keys) place = place[key] ??= {};
  place[last] = value;
}

/**
 * Focus the control that an error is about, and mark it; return whether there is one.
 *
 * @param {ParentNode} form
 * @param {string} field path in the body, such as `choices[3]` or `search.width`
 * @param {string} message
 * @param {boolean} [isFocused] false marks it only
 */
export function focusField(form, field, message, isFocused = true) {
  for (let path = field; path; path = path.replace(/(\[[^[]*\]|\.?[^.[]+)$/, "")) {
    const control = controlsOf(form).find((one) => one.dataset.path === path);
    if (!control) continue;
    for (let box = control.closest("details"); box; box = box.parentElement?.closest("details") ?? null)
      box.open = true;
    const note = h("p", { class: "wrong", id: freshId() }, message);
    control.closest(".field")?.append(note);
    control.setAttribute("aria-invalid", "true");
    control.setAttribute(
      "aria-describedby",
      [control.getAttribute("aria-describedby"), note.id].filter(Boolean).join(" "),
    );
    if (!isFocused) return true;
    const line = /\[(\d+)\]/.exec(field.slice(path.length));
    if (line && control instanceof HTMLTextAreaElement && control.dataset.lines !== undefined)
      selectLine(control, Number(line[1]));
    control.focus();
    return true;
  }
  return false;
}

/**
 * Select the line of a text area that holds an item of a list.
 *
 * @param {HTMLTextAreaElement} control
 * @param {number} index of the item, not counting empty lines
 */
function selectLine(control, index) {
  let start = 0;
  for (const line of control.value.split("\n")) {
    if (line !== "" && index-- === 0) {
      control.setSelectionRange(start, start + line.length);
      return;
    }
    start += line.length + 1;
  }
}

/**
 * Remove the marks of errors from a form.
 *
 * @param {ParentNode} form
 */
export function clearErrors(form) {
  for (const one of form.querySelectorAll("[aria-invalid]")) {
    const hint = one.id && document.getElementById(`${one.id}-hint`);
    if (hint) one.setAttribute("aria-describedby", hint.id);
    else one.removeAttribute("aria-describedby");
    one.removeAttribute("aria-invalid");
  }
  for (const one of form.querySelectorAll(".wrong")) one.remove();
}
