// @ts-check
/**
 * Sharing and saving: everything typed is in the address, behind `#`, which no server is sent.
 *
 * The fragment is JSON, compressed (deflate) and written in base64url. It has the open tab, its
 * inputs, and the numbers of its last answer. Above `MOST_BYTES` it is a file instead, and the
 * inputs outlive a reload in `sessionStorage`. A key is never in it.
 */

import { GoneError, address } from "./api.js";
import { h, stateOf } from "./form.js";
import { errorOf, number, score, textOf } from "./format.js";
import { announce, note } from "./states.js";

/** @typedef {import("./main.js").Page} Page */
/** @typedef {import("./main.js").Slot} Slot */
/** @typedef {[string, number, (number | null)?]} Told a name, a number, and by how much batching may move it if that is known */
/** @typedef {{winner: string, model: string, tolerance: number, numbers: Told[]}} Shown the numbers of an answer */
/** @typedef {{v: 1, tab: string, model?: string, state: Record<string, any>, shown?: Shown}} Saved */

const MOST_BYTES = 8192;
const MOST_NUMBERS = 40;
const WAIT_MS = 300;
const TYPED = "selectrie.typed";
const LARGE = "#large";
const UNREAD = "unread";

/**
 * Keep what is typed in the address from now on, and fill the page from it.
 *
 * @param {Page} page
 * @returns {Promise<boolean>} whether the page was filled
 */
export async function install(page) {
  /** @type {Map<Slot, Saved>} */
  const links = new Map();
  /** @type {WeakMap<Slot, any>} the answers that were compared with a link */
  const compared = new WeakMap();
  const saved = await readAddress();
  const isFilled = saved !== null && (await restore(page, saved, links));
  sayUnread(!isFilled && location.hash.length > 1);
  let timer = 0;
  page.listeners.push((slot) => {
    if (slot.tab && !slot.share) addMenu(page, slot, links);
    const link = links.get(slot);
    const { answer, request } = slot.context;
    if (link?.shown && answer && compared.get(slot) !== answer && isSame(request?.state, link.state)) {
      compared.set(slot, answer);
      compare(slot, link.shown);
    }
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = 0;
      void writeAddress(page);
    }, WAIT_MS);
  });
  window.addEventListener("pagehide", () => timer && keep(savedOf(page))); // there is no time to pack it
  page.changed();
  window.addEventListener("hashchange", () => void followLink(page, links));
  return isFilled;
}

/**
 * Fill the page from an address that was typed or pasted over the one it had.
 *
 * @param {Page} page
 * @param {Map<Slot, Saved>} links
 */
async function followLink(page, links) {
  const saved = await readAddress();
  const isFilled = saved !== null && (await restore(page, saved, links));
  sayUnread(!isFilled && location.hash.length > 1);
}

/**
 * Say above the tabs that the link of the address could not be read, or no longer say so.
 *
 * @param {boolean} isUnread
 */
function sayUnread(isUnread) {
  document.getElementById(UNREAD)?.remove();
  if (!isUnread) return;
  const said = "This link could not be read, so nothing was filled in from it.";
  document.getElementById("main")?.prepend(h("div", { id: UNREAD }, note("warning", [said])));
  announce(said);
}

/** @param {any} one @param {any} other */
function isSame(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

/**
 * @param {Page} page
 * @param {Saved} saved
 * @param {Map<Slot, Saved>} links
 */
async function restore(page, saved, links) {
  if (!page.slots.some((one) => one.name === saved.tab)) return false;
  const before = page.current;
  const slot = await page.open(saved.tab);
  if (!slot.tab) return false;
  try {
    slot.tab.write(slot.form, saved.state);
  } catch {
    slot.tab.write(slot.form, slot.tab.example);
    await page.open(before.name);
    return false;
  }
  if (saved.model) page.choose(saved.model);
  if (saved.shown) {
    links.set(slot, { ...saved, state: typedIn(slot) });
    slot.pane.place.replaceChildren();
    slot.pane.enter("empty", fromLink(saved.shown));
  } else slot.pane.enter("empty", h("p", {}, "Filled from the link. Run asks this server."));
  return true;
}

/**
 * Return the numbers of a link, as what they are.
 *
 * @param {Shown} shown
 */
function fromLink(shown) {
  const rows = shown.numbers.map(([name, value]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, textOf(name, 120)),
      h("td", { class: "number" }, number(value, score(value, shown.tolerance), "from the link")),
    ),
  );
  const head = [
    h(
      "p",
      { class: "from-link" },
      h("strong", {}, "From the link"),
      ", not asked here: ",
      textOf(shown.winner, 200),
      ", by ",
      h("bdi", {}, shown.model),
      ". Run asks this server.",
    ),
    h("div", { class: "scroll" }, h("table", { class: "link-numbers" }, h("tbody", {}, rows))),
  ];
  return h("div", {}, head);
}

/**
 * Say which numbers of an answer differ from those of a link by more than batching may move them,
 * and by how much they differ where that is not known.
 *
 * @param {Slot} slot
 * @param {Shown} there
 */
function compare(slot, there) {
  const here = shownOf(slot);
  if (!here || !there.numbers.length) return;
  const known = new Map(here.numbers.map(([name, ...rest]) => [name, rest]));
  const common = there.numbers.flatMap(([name, value, error]) => {
    const [other, own] = known.get(name) ?? [];
    const most = Math.max(error ?? 0, own ?? 0);
    return other === undefined ? [] : [{ name, value, other, most, apart: Math.abs(other - value) }];
  });
  const others = common.filter((one) => one.most > 0 && one.apart > one.most);
  const open = common.filter((one) => one.most === 0).map((one) => one.apart);
  const said = [];
  if (others.length) {
    const tolerance = Math.max(here.tolerance, there.tolerance);
    said.push(h("strong", {}, "Differs from the link: "));
    others.slice(0, 5).forEach(({ name, value, other }, at) => {
      const words = ` ${score(value, tolerance)} there, ${score(other, tolerance)} here`;
      said.push(at ? "; " : "", textOf(name, 60), words);
    });
    said.push(".");
  } else if (!common.length) said.push("None of the numbers of the link is in this answer.");
  else if (open.length) {
    const most = score(Math.ceil(1000 * Math.max(...open)) / 1000);
    said.push(`The numbers are at most ${most} from those of the link; how far batching may move them is not known.`);
  } else said.push("Within the tolerance, the numbers are those of the link.");
  const n = there.numbers.length;
  if (common.length && common.length < n)
    said.push(` The answer has ${common.length} of the ${n} numbers of the link.`);
  if (here.model !== there.model) said.push(" The link was made with ", h("bdi", {}, there.model), ".");
  slot.pane.head.append(note(others.length || !common.length ? "differs" : "agrees", said));
}

/**
 * Return the numbers of a tab's last answer, or null.
 *
 * @param {Slot} slot
 * @returns {Shown | null}
 */
function shownOf(slot) {
  const { answer } = slot.context;
  if (!answer) return null;
  const signature = answer.signature ?? {};
  const tolerance = signature.tolerance ?? answer.tolerance ?? 0;
  const found = slot.tab?.numbers ? slot.tab.numbers(answer) : numbersOf(answer);
  const finite = found.filter(([, value]) => Number.isFinite(value)).slice(0, MOST_NUMBERS);
  return {
    winner: String(answer.winner === undefined ? slot.sentence : answer.text),
    model: String(signature.model ?? answer.model ?? ""),
    tolerance,
    numbers: finite,
  };
}

/**
 * Return the log-probabilities of choices.
 *
 * @param {any} answer
 * @returns {Told[]}
 */
function numbersOf(answer) {
  return answer.choices.map((/** @type {any} */ one) => [
    String(one.text),
    one.logp ?? NaN,
    errorOf(answer.signature?.tolerance, one.tokens?.length),
  ]);
}

/**
 * Return what is typed in the open tab, with the numbers of its answer if that is of these inputs.
 *
 * @param {Page} page
 * @returns {Saved | null}
 */
function savedOf(page) {
  const slot = page.current;
  if (!slot.tab) return null;
  const state = typedIn(slot);
  const isAnswered = isSame(slot.context.request?.state, state);
  const shown = isAnswered ? shownOf(slot) : null;
  return { v: 1, tab: slot.name, ...(page.model && { model: page.model }), state, ...(shown && { shown }) };
}

/**
 * Return what is typed in a tab, also where it cannot be sent.
 *
 * @param {Slot} slot
 */
function typedIn(slot) {
  try {
    return /** @type {import("./main.js").Tab} */ (slot.tab).read(slot.form).state;
  } catch {
    return stateOf(slot.form);
  }
}

/**
 * Write what is typed into the address, or keep it for the session if it is too long for that.
 *
 * @param {Page} page
 */
async function writeAddress(page) {
  const saved = savedOf(page);
  if (!saved) return;
  const packed = await pack(saved);
  const isLong = packed.length > MOST_BYTES;
  keep(isLong ? saved : null);
  history.replaceState(null, "", isLong ? LARGE : `#${packed}`);
}

/** @param {Saved | null} saved what outlives a reload beside the address */
function keep(saved) {
  try {
    if (saved) sessionStorage.setItem(TYPED, JSON.stringify(saved));
    else sessionStorage.removeItem(TYPED);
  } catch {
    // The browser keeps no more; it can still be saved as a file.
  }
}

/** Return what the address or the session has, or null. @returns {Promise<Saved | null>} */
async function readAddress() {
  const came = /** @type {PerformanceNavigationTiming} */ (performance.getEntriesByType("navigation")[0]);
  try {
    const isSame = location.hash === LARGE || came.type === "reload" || came.type === "back_forward";
    const kept = isSame ? sessionStorage.getItem(TYPED) : null;
    const saved = kept ? JSON.parse(kept) : location.hash.length > 1 ? await unpack(location.hash.slice(1)) : null;
    return isSaved(saved) ? saved : null;
  } catch {
    return null; // a link that was cut, or is of something else
  }
}

/** @param {any} saved */
function isSaved(saved) {
  const shown = saved?.shown;
  const hasNumbers =
    !shown ||
    (Array.isArray(shown.numbers) &&
      shown.numbers.every(
        (/** @type {any} */ one) =>
          Array.isArray(one) &&
          typeof one[0] === "string" &&
          Number.isFinite(one[1]) &&
          (Number.isFinite(one[2]) || (one[2] ?? null) === null),
      ) &&
      Number.isFinite(shown.tolerance) &&
      typeof shown.winner === "string" &&
      typeof shown.model === "string");
  return (
    saved?.v === 1 &&
    typeof saved.tab === "string" &&
    saved.state !== null &&
    typeof saved.state === "object" &&
    hasNumbers
  );
}

/** @param {Saved} saved */
async function pack(saved) {
  const stream = new Blob([JSON.stringify(saved)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} packed */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/**
 * Add the menu of a tab: links, copies and files.
 *
 * @param {Page} page
 * @param {Slot} slot
 * @param {Map<Slot, Saved>} links
 */
function addMenu(page, slot, links) {
  const hint = h("p", { class: "hint" });
  const say = (/** @type {string} */ text) => {
    hint.textContent = text;
    announce(text);
  };
  const shown = h("textarea", {
    class: "copy",
    rows: 6,
    readonly: true,
    hidden: true,
    "aria-label": "What was copied",
    spellcheck: "false",
    dir: "ltr",
  });
  const request = () => /** @type {import("./main.js").Tab} */ (slot.tab).read(slot.form);
  const model = () =>
    slot.context.answer?.signature?.model?.replace(/^embedded\.gguf$/, "embedded") ??
    (page.model || page.first || "embedded");
  const copy = async (/** @type {string} */ what, /** @type {string} */ text) => {
    shown.hidden = false;
    shown.value = text;
    try {
      await navigator.clipboard.writeText(text);
      say(`${what} is copied.`);
    } catch {
      shown.select();
      say(`The browser does not let this page copy; ${what} is selected below.`);
    }
  };
  const copies = () => import("./copies.js");
  const guarded = (/** @type {() => void | Promise<void>} */ act) => async () => {
    try {
      await act();
    } catch (error) {
      slot.fail(error);
    }
  };
  const button = (/** @type {string} */ label, /** @type {() => void | Promise<void>} */ act) =>
    h("button", { type: "button", onclick: guarded(act) }, label);
  const link = async () => {
    await writeAddress(page);
    if (location.hash === LARGE) say("This is too long for a link. Save it as a file, which this menu opens again.");
    else await copy("The link", location.href);
  };
  const file = h("input", { type: "file", accept: "application/json,.json", "aria-label": "Open a saved file" });
  file.addEventListener("change", async () => {
    try {
      const saved = JSON.parse(await /** @type {File} */ (file.files?.[0]).text());
      if (!isSaved(saved) || !(await restore(page, saved, links))) throw new Error("no file of this page");
      page.changed();
    } catch {
      say("This file was not saved by this page.");
    }
    file.value = "";
  });
  const drawn = () => /** @type {SVGSVGElement[]} */ ([...slot.pane.place.querySelectorAll("svg.sel")]);
  const withPicture = (/** @type {(text: string) => void | Promise<void>} */ act) => async () => {
    if (drawn().length) await act(await standalone(drawn()));
    else say("There is no picture yet. Run first.");
  };
  const name = `selectrie-${slot.name}`;
  slot.share = h(
    "details",
    { class: "share" },
    h("summary", {}, "Share and save"),
    h(
      "div",
      { class: "buttons" },
      button("Copy link", link),
      button("Copy curl", async () => copy("curl", (await copies()).asCurl(request(), page.model, page.options))),
      button("Copy Python", async () => copy("Python", (await copies()).asPython(request(), model(), page.options))),
      button("Copy command", async () =>
        copy("The command", (await copies()).asCommand(request(), model(), page.options)),
      ),
      button("Save inputs", () => save(`${name}.json`, "application/json", JSON.stringify(savedOf(page), null, 1))),
      button("Save answer", () => {
        if (slot.context.answer)
          save(`${name}-answer.json`, "application/json", JSON.stringify(slot.context.answer, null, 1));
        else say("There is no answer yet. Run first.");
      }),
      button(
        "Save SVG",
        withPicture((text) => save(`${name}.svg`, "image/svg+xml", text)),
      ),
      button(
        "Save PNG",
        withPicture(async (text) => save(`${name}.png`, "image/png", await rasterised(text))),
      ),
      h("label", { class: "open-file" }, "Open a file ", file),
    ),
    hint,
    shown,
  );
  slot.actions.append(slot.share);
}

/**
 * Return pictures below each other as one SVG with its own styles.
 *
 * @param {SVGSVGElement[]} pictures
 */
async function standalone(pictures) {
  const response = await fetch(address("/page/drawing.css"));
  if (!response.ok) throw new GoneError("the styles of pictures could not be loaded");
  const styles = await response.text();
  const gap = 16;
  const size = (/** @type {SVGSVGElement} */ one, /** @type {string} */ side) => Number(one.getAttribute(side));
  const width = Math.max(...pictures.map((one) => size(one, "width")));
  const height = pictures.reduce((sum, one) => sum + size(one, "height") + gap, -gap);
  const root = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` }))
    root.setAttribute(name, String(value));
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = styles;
  root.append(style);
  let top = 0;
  for (const one of pictures) {
    const part = /** @type {SVGSVGElement} */ (one.cloneNode(true));
    part.setAttribute("y", String(top));
    root.append(part);
    top += size(one, "height") + gap;
  }
  return new XMLSerializer().serializeToString(root);
}

/** @param {string} text an SVG @returns {Promise<Blob>} it as PNG, twice as large */
async function rasterised(text) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = h("canvas", { width: 2 * image.width, height: 2 * image.height });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, fail) =>
      canvas.toBlob(
        (blob) => (blob ? done(blob) : fail(new Error("the picture is too large for the browser"))),
        "image/png",
      ),
    );
  } finally {
    URL.revokeObjectURL(url);
  }
}

/**
 * Let the browser save a file.
 *
 * @param {string} name
 * @param {string} kind
 * @param {BlobPart} data
 */
function save(name, kind, data) {
  const url = URL.createObjectURL(new Blob([data], { type: kind }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  announce(`${name} is saved.`);
}
