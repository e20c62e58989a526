// @ts-check
/**
 * The states of the answer of a tab: empty, running, streaming, done, tie, low-mass, too-large,
 * stopped, error, refused and gone.
 *
 * The state is in `data-state`. While a request runs, the old answer stays, greyed.
 */

import { GoneError, ServerError, key, setKey } from "./api.js";
import { duration, whole } from "./format.js";
import { freshId, h } from "./form.js";

/** @typedef {"empty" | "running" | "streaming" | "done" | "tie" | "low-mass" | "too-large" | "stopped" | "error" | "refused" | "gone"} State */

const PROGRESS_MS = 5000; // between two announcements of progress
let announcedAt = 0;

/**
 * Let a screen reader say a sentence.
 *
 * @param {string} text
 */
export function announce(text) {
  const status = /** @type {HTMLElement} */ (document.getElementById("status"));
  status.textContent = text;
  announcedAt = performance.now();
}

/** The answer of a tab, with what is said about the request above it. */
export class Pane {
  /** @param {string} label */
  constructor(label) {
    this.head = h("div", { class: "state" });
    this.place = h("div", { class: "result" });
    this.section = h("section", { class: "answer", "aria-label": label, "data-state": "empty" }, this.head, this.place);
    this.timer = 0;
  }

  /** @returns {State} */
  get state() {
    return /** @type {State} */ (this.section.dataset.state);
  }

  /**
   * Go to a state, with what is said about it.
   *
   * @param {State} state
   * @param {...(string | Node)} said
   */
  enter(state, ...said) {
    clearInterval(this.timer); // or a timeout: they share their numbers
    this.section.dataset.state = state;
    this.section.setAttribute("aria-busy", String(state === "running" || state === "streaming"));
    this.place.classList.toggle(
      "stale",
      !["done", "tie", "low-mass", "too-large", "streaming", "empty"].includes(state),
    );
    this.head.replaceChildren(...said);
  }

  /**
   * Show that a request runs, with its seconds and a button that stops it.
   *
   * @param {() => void} stop
   */
  run(stop) {
    const began = performance.now();
    const time = h("span", { class: "time" }, "0.0 s");
    this.count = h("span", { class: "nodes" }, "Running");
    this.bar = h("progress", { "aria-label": "Work done" });
    this.enter(
      "running",
      this.bar,
      h("p", {}, this.count, " · ", time),
      h("button", { type: "button", class: "stop", onclick: stop }, "Stop"),
    );
    announcedAt = began;
    this.timer = setInterval(() => {
      time.textContent = `${((performance.now() - began) / 1000).toFixed(1)} s`;
    }, 100);
  }

  /**
   * Show how much is done.
   *
   * @param {number} done
   * @param {number | null} total null if it is not known
   * @param {string} [unit] what is counted
   * @param {string} [most] stands before a total that is an upper bound
   */
  progress(done, total, unit = "node", most = "") {
    if (!this.bar || !this.count) return;
    if (total) {
      this.bar.max = total;
      this.bar.value = done;
    }
    const count = total ? `${whole(done)} of ${most}${whole(total)}` : whole(done);
    const text = `${count} ${unit}${(total ?? done) === 1 ? "" : "s"}`;
    this.count.textContent = text;
    if (performance.now() - announcedAt > PROGRESS_MS) announce(text);
  }

  /** Show parts of an answer while the request still runs; the old answer is gone. */
  stream() {
    if (this.state !== "running") return;
    this.section.dataset.state = "streaming";
    this.place.classList.remove("stale");
  }

  /**
   * Show an error, with what can be done about it.
   *
   * @param {unknown} error
   * @param {{retry: () => void, toField?: (() => void) | null}} actions
   */
  fail(error, { retry, toField = null }) {
    const again = h("button", { type: "button", class: "retry", onclick: retry }, "Try again");
    if (error instanceof ServerError && error.status === 401) {
      const words = key() ? "This server does not know this API key." : "This server wants an API key.";
      this.enter("refused", h("p", {}, h("strong", {}, words)), keyForm(retry));
      announce(words);
    } else if (error instanceof ServerError && error.code === "loading") {
      this.enter(
        "refused",
        h("progress", { "aria-label": "Loading" }),
        h("p", {}, h("strong", {}, "The model is being loaded."), " This is asked again when it may be ready."),
        again,
      );
      announce("The model is being loaded.");
      this.timer = setTimeout(retry, 1000 * Math.max(1, error.retryAfterS));
    } else if (error instanceof ServerError && error.retryAfterS > 0) {
      this.wait(error, again);
    } else if (error instanceof GoneError) {
      this.enter(
        "gone",
        h("p", {}, h("strong", {}, "The server does not answer."), " What you have typed is kept."),
        h("p", { class: "detail" }, error.message),
        again,
      );
      announce("The server does not answer.");
    } else {
      const code = error instanceof ServerError ? error.code : "input";
      const message = error instanceof Error ? error.message : String(error);
      const about =
        error instanceof ServerError && error.field ? [" in ", h("code", { class: "param" }, error.field)] : [];
      this.enter(
        "error",
        h("p", {}, h("strong", {}, "Error "), h("code", { class: "code" }, code), ...about),
        h("p", { class: "message" }, h("bdi", {}, message)),
        toField ? h("button", { type: "button", onclick: toField }, "Go to the field") : "",
      );
      announce(`Error: ${message}`);
    }
  }

  /**
   * Count down until a refused request may be sent again.
   *
   * @param {ServerError} error
   * @param {HTMLButtonElement} again
   */
  wait(error, again) {
    const until = performance.now() + 1000 * Math.ceil(error.retryAfterS);
    const time = h("span", { class: "countdown" });
    const count = () => {
      const left = Math.round((until - performance.now()) / 1000);
      time.textContent = left > 0 ? `in ${left} s` : "now";
      again.disabled = left > 0;
      if (left <= 0) clearInterval(this.timer);
    };
    this.enter(
      "refused",
      h(
        "p",
        {},
        h("strong", {}, "Refused"),
        " (",
        h("code", { class: "code" }, error.code),
        "). Try again ",
        time,
        ".",
      ),
      h("p", { class: "message" }, error.message),
      again,
    );
    announce(`Refused. ${error.message}`);
    this.timer = setInterval(count, 1000);
    count();
  }
}

/**
 * Return a form that asks for the key and keeps it for the session. The document then has an
 * event `key`.
 *
 * @param {() => void} [then] what is done besides
 */
export function keyForm(then = () => {}) {
  const input = h("input", {
    type: "password",
    id: freshId(),
    autocomplete: "off",
    spellcheck: "false",
    required: true,
  });
  return h(
    "form",
    {
      class: "key",
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        setKey(input.value.trim());
        document.dispatchEvent(new Event("key"));
        then();
      },
    },
    h("label", { for: input.id }, "API key"),
    input,
    h("button", { class: "primary" }, "Use it"),
    h("p", { class: "hint" }, "It is kept until this tab of the browser is closed, and is in no link and no export."),
  );
}

/**
 * Return a note with what it says and what can be done about it.
 *
 * @param {string} kind such as `low-mass`
 * @param {(string | Node)[]} said
 * @param {[string, () => void][]} [remedies] buttons
 */
export function note(kind, said, remedies = []) {
  const buttons = remedies.map(([label, act]) => h("button", { type: "button", onclick: act }, label));
  return h(
    "div",
    { class: `note ${kind}` },
    h("p", {}, ...said),
    buttons.length ? h("p", { class: "remedies" }, buttons) : null,
  );
}

/**
 * Return the sentence that an answer is announced with, and its time.
 *
 * @param {string} sentence
 * @param {number} milliseconds
 */
export function announceAnswer(sentence, milliseconds) {
  announce(`${sentence} Answered in ${duration(milliseconds)}.`);
}
