// @ts-check
/**
 * Drawings of the server: its shapes as elements of SVG, and the same content as a nested list.
 *
 * The layout is the server's. The picture is hidden from screen readers; keyboards and screen
 * readers use the list. A window that is too narrow for a picture shows the list instead, with a
 * bar for each item. A shape shows its title on hover and touch; Escape closes it.
 */

import { freshId, h, scroller } from "./form.js";
import { barOf, number } from "./format.js";

/** @typedef {{tag: string, attributes: Record<string, string>, text: string, children: Shape[]}} Shape */
/** @typedef {{name: string, value: number | null, text: string}} Figure */
/** @typedef {{label: string, numbers: Figure[], marks: string[], node: number | null, children: Item[]}} Item */
/** @typedef {{width: number, height: number, title: string, shapes: Shape[], outline: Item[]}} Drawing */

const SVG = "http://www.w3.org/2000/svg";
/** Windows in which `page.css` hides pictures. */
const NARROW = matchMedia("(max-width: 45rem)");
NARROW.addEventListener("change", () => {
  for (const one of document.querySelectorAll("details.as-list")) one.toggleAttribute("open", NARROW.matches);
});
const TAGS = new Set(["g", "svg", "rect", "path", "line", "circle", "polygon", "text", "tspan", "title"]);
const ATTRIBUTES =
  /^(class|d|x|y|x1|x2|y1|y2|dx|dy|r|cx|cy|rx|ry|points|width|height|viewBox|transform|stroke-width|stroke-dasharray|data-[a-z-]+)$/;

/**
 * Return a drawing as a figure: the picture, and the list below it.
 *
 * @param {Drawing} drawing
 * @param {{name: string, folded?: number[], onFold?: ((folded: number[]) => void) | null, caption?: string | Node}} given
 * @returns {HTMLElement}
 */
export function figureOf(drawing, { name, folded = [], onFold = null, caption = "" }) {
  const picture = pictureOf(drawing);
  const list = listOf(drawing.outline, folded, onFold);
  const figure = h(
    "figure",
    { class: `drawing ${name}` },
    scroller(drawing.title, "picture", picture),
    caption ? h("figcaption", {}, caption) : null,
    h("details", { class: "as-list", open: NARROW.matches }, h("summary", {}, `${drawing.title} – as a list`), list),
  );
  figure.style.setProperty("--width", `${drawing.width}px`);
  listen(figure, picture, drawing.outline, folded, onFold);
  return figure;
}

/**
 * Return the picture of a drawing.
 *
 * @param {Drawing} drawing
 * @returns {SVGSVGElement}
 */
export function pictureOf(drawing) {
  const svg = document.createElementNS(SVG, "svg");
  const given = {
    class: "sel",
    width: drawing.width,
    height: drawing.height,
    viewBox: `0 0 ${drawing.width} ${drawing.height}`,
  };
  for (const [name, value] of Object.entries(given)) svg.setAttribute(name, String(value));
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("focusable", "false");
  for (const shape of drawing.shapes) append(svg, shape);
  return svg;
}

/**
 * @param {SVGElement} parent
 * @param {Shape} shape
 */
function append(parent, shape) {
  if (!TAGS.has(shape.tag)) return;
  const element = document.createElementNS(SVG, shape.tag);
  for (const [name, value] of Object.entries(shape.attributes)) {
    if (ATTRIBUTES.test(name)) element.setAttribute(name, value);
  }
  if (shape.text) element.textContent = shape.text;
  parent.append(element);
  for (const child of shape.children) append(element, child);
}

/**
 * Return the outline of a drawing as a nested list, whose parts fold by buttons.
 *
 * @param {Item[]} items
 * @param {number[]} folded nodes that the server has folded
 * @param {((folded: number[]) => void) | null} onFold asks for the drawing with other folded nodes
 * @returns {HTMLElement}
 */
function listOf(items, folded, onFold) {
  return h(
    "ul",
    { class: "outline" },
    items.map((item) => itemOf(item, folded, onFold)),
  );
}

/**
 * @param {Item} item
 * @param {number[]} folded
 * @param {((folded: number[]) => void) | null} onFold
 */
function itemOf(item, folded, onFold) {
  const isFolded = item.node !== null && folded.includes(item.node);
  if (!item.children.length && !isFolded) return h("li", {}, h("span", { class: "leaf" }, wordsOf(item)));
  const list = isFolded ? null : listOf(item.children, folded, onFold);
  const button = h("button", { type: "button", "aria-expanded": String(!isFolded) }, wordsOf(item));
  if (list) {
    list.id = freshId();
    button.setAttribute("aria-controls", list.id);
  }
  button.addEventListener("click", () => {
    if (onFold && item.node !== null) {
      onFold(toggled(folded, item.node));
    } else if (list) {
      list.hidden = !list.hidden;
      button.setAttribute("aria-expanded", String(!list.hidden));
    }
  });
  if (item.node !== null) button.dataset.node = String(item.node);
  return h("li", {}, button, list);
}

/**
 * @param {number[]} folded
 * @param {number} node
 */
function toggled(folded, node) {
  return folded.includes(node) ? folded.filter((one) => one !== node) : [...folded, node];
}

/**
 * Return an item in words.
 *
 * @param {Item} item
 * @returns {(string | Node)[]}
 */
function wordsOf({ label, numbers, marks }) {
  const share = numbers[0]?.value ?? -1;
  return [
    h("bdi", { class: numbers.length ? "text" : null }, label),
    ...(share >= 0 && share <= 1 ? [" ", barOf(share)] : []),
    ...numbers.flatMap((one, at) => [
      at ? ", " : " ",
      h("span", { class: "figure" }, `${one.name} `, number(one.value, one.text, one.name)),
    ]),
    ...(marks.length ? [", ", h("span", { class: "marks" }, marks.join(", "))] : []),
  ];
}

/**
 * Show the title of a shape below a mouse, a pen or a finger, and let a click fold its branch.
 *
 * @param {HTMLElement} figure
 * @param {SVGSVGElement} picture
 * @param {Item[]} outline
 * @param {number[]} folded
 * @param {((folded: number[]) => void) | null} onFold
 */
function listen(figure, picture, outline, folded, onFold) {
  const tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  figure.append(tip);
  const foldable = new Set(folded);
  const collect = (/** @type {Item[]} */ some) => {
    for (const one of some) {
      if (one.node !== null && one.children.length) foldable.add(one.node);
      collect(one.children);
    }
  };
  collect(outline);
  let putBack = () => {};
  picture.addEventListener("pointerover", (event) => {
    const shape = /** @type {Element} */ (event.target).closest(":has(> title)");
    const title = shape?.querySelector(":scope > title");
    putBack();
    tip.hidden = !title;
    if (!shape || !title) return;
    tip.textContent = title.textContent;
    const next = title.nextSibling;
    title.remove(); // else the browser shows it too
    putBack = () => void shape.insertBefore(title, next);
    const box = figure.getBoundingClientRect();
    const at = shape.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(at.left - box.left, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${at.bottom - box.top + 4}px`;
  });
  picture.addEventListener("pointerleave", (event) => {
    putBack();
    putBack = () => {};
    if (event.pointerType === "mouse") tip.hidden = true;
  });
  picture.addEventListener("click", (event) => {
    const node = Number(/** @type {Element} */ (event.target).closest("[data-node]")?.getAttribute("data-node") ?? -1);
    if (onFold && foldable.has(node) && /** @type {PointerEvent} */ (event).pointerType !== "touch")
      onFold(toggled(folded, node));
  });
}

/** Close what hovers over a drawing; return whether anything did. */
export function closeTips() {
  const open = [...document.querySelectorAll(".tip:not([hidden])")];
  for (const one of open) one.toggleAttribute("hidden", true);
  return open.length > 0;
}
