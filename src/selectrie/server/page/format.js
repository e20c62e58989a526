// @ts-check
/**
 * Texts and numbers as a person can read them.
 *
 * A text of data stands in `<bdi>`, with its invisible characters shown. A number stands in
 * `<data value>` with all its digits, and its text promises no more than is known.
 */

import { h } from "./form.js";

const INVISIBLE = /^ +| +$| {2,}|(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/gu;
/** How the common invisible characters are shown; others by their code points. */
const SHOWN = new Map([
  ["\n", "⏎"],
  ["\r", "␍"],
  ["\t", "⇥"],
]);

/** What is added to a number before its fraction is cut, which rounds it. */
const [NEAREST, DOWN, UP] = [0.5, 1e-9, 1 - 1e-9];

/** Stands for a tolerance that is not known: above 0, so that no probability reads as exactly 1. */
export const UNKNOWN = Number.MIN_VALUE;

/**
 * Return a text as plain characters, with the invisible ones shown: `␣ ⏎ ⇥ ‹U+202E›`.
 *
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(INVISIBLE, mark);
}

/** @param {string} found */
function mark(found) {
  if (found.startsWith(" ")) return "␣".repeat(found.length);
  const code = /** @type {number} */ (found.codePointAt(0));
  return SHOWN.get(found) ?? `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
}

/**
 * Return a text of data as an element: isolated, with marks in the place of invisible characters.
 *
 * @param {string} text
 * @param {number} [most] characters that are shown; the whole text is then the element's title
 * @returns {HTMLElement}
 */
export function textOf(text, most = 400) {
  const cut = text.length > most ? text.slice(0, most) : text;
  const bdi = h("bdi", { class: "text", dir: "auto" });
  let end = 0;
  for (const found of cut.matchAll(INVISIBLE)) {
    bdi.append(cut.slice(end, found.index), h("span", { class: "mark" }, mark(found[0])));
    end = found.index + found[0].length;
  }
  bdi.append(cut.slice(end));
  if (!text) bdi.append(h("span", { class: "mark" }, "‹empty›"));
  if (cut.length < text.length) {
    bdi.append("…");
    bdi.title = visible(text.slice(0, 4000));
  }
  return bdi;
}

/**
 * Return a number as an element with all its digits in `value`.
 *
 * @param {number | null | undefined} value
 * @param {string} text
 * @param {string} [name] what the number is, for tests and for copying
 * @returns {HTMLElement}
 */
export function number(value, text, name = "") {
  if (value === null || value === undefined) return h("span", {}, text);
  return h("data", { value: String(value), ...(name && { "data-name": name }) }, text);
}

/**
 * Return a probability as Python's `percent` in `core/notation.py` writes it, by the rule
 * that is told there: "12 %", "≈ 30 %" or "< 0.1 %". It is "0 %" or "100 %" only if that is exact.
 *
 * @param {number} p
 * @param {number} [tolerance] of a row, in nats; above 0.05, one digit is left
 * @returns {string}
 */
export function percent(p, tolerance = 0) {
  return roundPercent(p, tolerance, NEAREST);
}

/**
 * Return `percent` with its last digit rounded in a direction.
 *
 * @param {number} p
 * @param {number} tolerance
 * @param {number} direction
 */
function roundPercent(p, tolerance, direction) {
  if ((p === 0 || p === 1) && !tolerance) return `${100 * p} %`;
  if (p < 0.001) return "< 0.1 %";
  if (p > 1 - 0.001) return "> 99.9 %";
  const written = (/** @type {number} */ n, /** @type {number} */ parts) =>
    parts === 1000 ? `${(n / 10).toFixed(1)} %` : `${(n * 100) / parts} %`;
  if (tolerance <= 0.05) {
    const n = Math.floor(p * 1000 + direction);
    const parts = n >= 100 && n <= 990 ? 100 : 1000;
    return written(Math.floor(p * parts + direction), parts);
  }
  const [rest, way] = p <= 0.5 ? [p, direction] : [1 - p, 1 - direction];
  const parts = [10, 100].find((some) => Math.floor(rest * some * 10 + way) >= 10) ?? 1000;
  const n = Math.floor(rest * parts + way);
  return `≈ ${written(p <= 0.5 ? n : parts - n, parts)}`;
}

/**
 * Return an interval of probabilities as Python's `percent_between` writes it: "12 % to 15 %",
 * "at most 12 %" or "not known".
 *
 * @param {number} low
 * @param {number} high
 * @param {number} [tolerance] as for `percent`
 * @returns {string}
 */
export function percentBetween(low, high, tolerance = 0) {
  [low, high] = [Math.max(0, low), Math.min(1, high)];
  const nearest = percent(low, tolerance);
  if (nearest === percent(high, tolerance)) return nearest;
  const [first, last] = [roundPercent(low, tolerance, DOWN), roundPercent(high, tolerance, UP)];
  if (low === 0) return last.startsWith(">") || high === 1 ? "not known" : `at most ${last.replace("< ", "")}`;
  if (high === 1) return first.startsWith(">") ? first : first.startsWith("<") ? "not known" : `at least ${first}`;
  return `${first} to ${first.startsWith("≈") ? last.replace("≈ ", "") : last}`;
}

/**
 * Return a bar to the low end of a share, hatched to its high end; the whole width is 1.
 *
 * @param {number} low
 * @param {number} [high]
 */
export function barOf(low, high = low) {
  const solid = h("span", { class: "solid" });
  const open = h("span", { class: "open" });
  solid.style.inlineSize = `${100 * low}%`;
  open.style.inlineSize = `${100 * Math.max(0, high - low)}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, solid, open);
}

/**
 * Return by how much a probability moves, in percentage points: "± 3.2 points", "under 0.1 points".
 *
 * @param {number} change
 * @param {number} [tolerance] of a row, in nats; above 0.05, whole points are left
 * @returns {string}
 */
export function points(change, tolerance = 0) {
  const least = tolerance > 0.05 ? 1 : 0.1;
  if (100 * change < least) return change ? `under ${least} ${least === 1 ? "point" : "points"}` : "0 points";
  const text = (100 * change).toFixed(least === 1 || change >= 0.0995 ? 0 : 1);
  return `± ${text} ${text === "1" ? "point" : "points"}`;
}

/**
 * Return a log-probability or another score as Python's `write_logp` writes it, with a true minus.
 *
 * @param {number} value
 * @param {number} [tolerance]
 * @param {boolean} [isBound] whether it is an upper bound, which is rounded up
 * @returns {string}
 */
export function score(value, tolerance = 0, isBound = false) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : String(value);
  const digits = tolerance > 0.05 ? 1 : tolerance > 0.0005 ? 2 : 3;
  const unit = 10 ** digits;
  const text = (isBound ? Math.floor(value * unit + UP) / unit : value).toFixed(digits);
  return Number(text) ? text.replace("-", "−") : text.replace("-", "");
}

/**
 * Return by how many nats batching may move the log-probability of a text, or null if the
 * tolerance is not known. There is a row for each token and one for what follows.
 *
 * @param {number | null | undefined} tolerance of one row
 * @param {number} [n] tokens
 */
export function errorOf(tolerance, n = 0) {
  return tolerance ? Number((tolerance * Math.sqrt(n + 1)).toPrecision(3)) : null;
}

/**
 * Return a whole number with thin spaces between thousands.
 *
 * @param {number} value
 */
export function whole(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/**
 * Return a time in milliseconds or seconds.
 *
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  if (milliseconds < 1000) return `${Math.max(1, Math.round(milliseconds))} ms`;
  return `${(milliseconds / 1000).toFixed(milliseconds < 10000 ? 1 : 0)} s`;
}
