// @ts-check
/**
 * The page: its tabs, what runs, and the model that is asked.
 *
 * A tab is an object (`Tab`) that adds its inputs to a form, reads a request from it, and shows
 * an answer. Its module is loaded when it is first opened. Everything else is done here: running
 * and stopping, states, errors, keys and the keyboard (Ctrl+Enter runs, Escape stops).
 */

import { GoneError, ServerError, address, ask, stream } from "./api.js";
import { closeTips } from "./drawing.js";
import { FieldError, clearErrors, focusField, h } from "./form.js";
import { UNKNOWN, duration } from "./format.js";
import { rank, select } from "./select.js";
import { install } from "./share.js";
import { Pane, announce, announceAnswer, keyForm } from "./states.js";

/** @typedef {import("./form.js").Option} Option */
/**
 * @typedef {object} Request
 * @property {string} path of the endpoint
 * @property {Record<string, any>} body
 * @property {Record<string, any>} state what is typed, as `write` takes it
 */
/** @typedef {{tolerance: number, hasChat: boolean}} Model by how many nats batching may move a row, and whether it has a chat template */
/**
 * @typedef {object} Outcome What an answer comes to.
 * @property {import("./states.js").State} state
 * @property {string} sentence that announces it
 */
/**
 * @typedef {object} Context What a tab may use of the page.
 * @property {Record<string, Option[]>} options of each call, by its path
 * @property {HTMLFormElement} form
 * @property {Request | null} request the last one that was answered
 * @property {any} answer the last one
 * @property {() => Promise<void>} run reads the form and asks
 * @property {(more: Record<string, any>) => Promise<void>} again asks the last request with other fields
 * @property {Promise<Model>} model that the last request is sent to
 * @property {boolean} hasChat whether the model that answered has a chat template
 */
/**
 * @typedef {object} Tab
 * @property {string} name
 * @property {string} title
 * @property {string} lead what the tab answers, as a sentence
 * @property {boolean} isStream whether the call takes `stream`
 * @property {boolean} [isLive] whether it may run while typing
 * @property {Record<string, any>} example a state for `write`
 * @property {(form: HTMLElement, context: Context) => void} build adds the inputs
 * @property {(form: HTMLFormElement) => Request} read raises `FieldError` for what cannot be sent
 * @property {(form: HTMLFormElement, state: Record<string, any>) => void} write
 * @property {(answer: any, place: HTMLElement, context: Context) => Outcome} show
 * @property {(answer: any) => import("./share.js").Told[]} [numbers] of an answer that a link keeps; by default those of its choices
 * @property {(event: any, pane: Pane, gathered?: any) => void | Promise<void>} [news] shows an event before the result
 * @property {(body: Record<string, any>, context: Context) => {add: (event: any) => void, result: () => any, end: () => Promise<any>}} [gather] makes the answer of a stream that has no event `result`; `end` returns the whole one
 * @property {(place: HTMLElement, context: Context) => void} [begin] is called before a request is sent
 * @property {(message: string, form: HTMLFormElement) => Node | null} [explain] returns what is shown below an error's message
 */

const LIVE_MS = 300;
const LOADING_MS = 1500; // after which it is asked again whether the model is loaded

/** @type {{name: string, title: string, load: () => Promise<Tab>}[]} */
const TABS = [
  { name: "decide", title: "Decide", load: () => import("./decide.js").then((one) => one.decide) },
  { name: "select", title: "Select", load: async () => select },
  { name: "rank", title: "Rank", load: async () => rank },
  { name: "grammar", title: "Grammar", load: () => import("./grammar.js").then((one) => one.grammar) },
  { name: "template", title: "Template", load: () => import("./template.js").then((one) => one.template) },
  { name: "generate", title: "Generate", load: () => import("./generate.js").then((one) => one.generate) },
];

/** A tab with its form and its answer. */
export class Slot {
  /**
   * @param {Page} page
   * @param {string} name
   * @param {string} title
   */
  constructor(page, name, title) {
    this.page = page;
    this.name = name;
    this.button = h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": `panel-${name}`,
        "aria-selected": "false",
        tabindex: "-1",
      },
      title,
    );
    this.panel = h("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}`, hidden: true });
    this.form = h("form", { class: "ask", novalidate: true });
    this.inputs = h("div", { class: "inputs" });
    this.actions = h("div", { class: "actions" });
    /** @type {HTMLElement | null} */
    this.share = null;
    /** What the last answer comes to, as a sentence. */
    this.sentence = "";
    this.pane = new Pane(`Answer of ${title}`);
    /** @type {Tab | null} */
    this.tab = null;
    /** @type {AbortController | null} */
    this.controller = null;
    /** @type {Context} */
    this.context = {
      options: page.options,
      form: this.form,
      request: null,
      answer: null,
      run: () => this.run(),
      again: (more) => this.again(more),
      model: Promise.resolve({ tolerance: UNKNOWN, hasChat: true }),
      hasChat: true,
    };
  }

  /** @param {Tab} tab */
  build(tab) {
    this.tab = tab;
    tab.build(this.inputs, this.context);
    this.runButton = h("button", { class: "primary run", "aria-keyshortcuts": "Control+Enter" }, "Run");
    this.actions.append(this.runButton, h("kbd", { "aria-hidden": "true" }, "Ctrl+Enter"));
    if (tab.isLive) {
      this.live = h("input", { type: "checkbox", id: `live-${tab.name}` });
      this.actions.append(
        h("span", { class: "field tick" }, this.live, h("label", { for: this.live.id }, "live: run while typing")),
      );
    }
    this.form.append(this.inputs, this.actions);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.run();
    });
    this.form.addEventListener("input", () => this.onInput());
    this.panel.append(h("p", { class: "lead" }, tab.lead), this.form, this.pane.section);
    tab.write(this.form, tab.example);
    this.pane.enter("empty", h("p", {}, "An example is filled in. Run asks this server."));
  }

  onInput() {
    this.page.changed();
    clearTimeout(this.liveTimer);
    if (this.live?.checked) this.liveTimer = setTimeout(() => void this.run(false), LIVE_MS);
  }

  /**
   * Read the form, ask the server and show the answer.
   *
   * @param {boolean} [isMoving] whether the answer may be scrolled to, and a field get the focus
   */
  async run(isMoving = true) {
    if (!this.tab) return;
    clearTimeout(this.liveTimer);
    clearErrors(this.form);
    this.isMoving = isMoving;
    this.isQuiet = false;
    try {
      await this.send(this.tab.read(this.form));
    } catch (error) {
      this.fail(error);
    }
  }

  /** Scroll to the answer if its beginning is not in sight. */
  reveal() {
    const { top } = this.pane.section.getBoundingClientRect();
    if (this.isMoving && (top < 0 || top > innerHeight - 160)) this.pane.section.scrollIntoView({ block: "start" });
  }

  /**
   * Ask the last request with other fields, without moving the page. A folded drawing is no news.
   *
   * @param {Record<string, any>} more
   */
  async again(more) {
    const request = this.context.request;
    this.isMoving = false;
    this.isQuiet = "fold" in more;
    if (request) await this.send({ ...request, body: { ...request.body, ...more } }).catch((error) => this.fail(error));
  }

  /**
   * Send a request in the place of the one that runs, and show its answer.
   *
   * @param {Request} request
   */
  async send(request) {
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    const began = performance.now();
    this.pane.run(() => this.stop());
    const model = (this.context.model = this.page.describeModel());
    this.tab?.begin?.(this.pane.place, this.context);
    this.reveal();
    try {
      const answer = await this.answerOf(request, controller.signal);
      this.context.hasChat = (await model).hasChat;
      if (this.controller !== controller) return;
      this.context.request = request;
      this.show(answer, performance.now() - began);
      this.page.answered(this);
    } catch (error) {
      if (controller.signal.aborted || this.controller !== controller) return;
      this.fail(error);
    } finally {
      if (this.controller === controller) this.controller = null;
    }
  }

  /**
   * @param {Request} request
   * @param {AbortSignal} signal
   */
  async answerOf(request, signal) {
    const body = this.page.named(request.body);
    if (!this.tab?.isStream) return ask(request.path, body, signal);
    const gathered = this.tab.gather?.(body, this.context);
    let answer = null;
    for await (const event of stream(request.path, body, signal)) {
      gathered?.add(event);
      if (event.type === "progress") this.pane.progress(event.done, event.total);
      if (event.type === "result") answer = event;
      else await this.tab.news?.(event, this.pane, gathered?.result());
    }
    if (gathered) return gathered.end();
    if (answer) return answer;
    throw new GoneError("the answer ended early");
  }

  /**
   * Show an answer.
   *
   * @param {any} answer
   * @param {number | null} milliseconds that it took; null for a stored one
   * @param {(string | Node)[]} said above it, for a stored one
   */
  show(answer, milliseconds, said = []) {
    const tab = /** @type {Tab} */ (this.tab);
    this.context.answer = answer;
    const outcome = tab.show(answer, this.pane.place, this.context);
    this.sentence = outcome.sentence;
    const time =
      milliseconds === null
        ? said
        : [
            h(
              "p",
              { class: "took" },
              "Answered in ",
              h("data", { value: String(milliseconds), "data-name": "milliseconds" }, duration(milliseconds)),
            ),
          ];
    this.pane.enter(outcome.state, ...time);
    if (milliseconds !== null && !this.isQuiet) announceAnswer(outcome.sentence, milliseconds);
  }

  /** @param {unknown} error */
  fail(error) {
    this.dropOld();
    const field = error instanceof FieldError || error instanceof ServerError ? error.field : "";
    const message = error instanceof Error ? error.message : String(error);
    const toField = (isFocused = true) => {
      clearErrors(this.form);
      return focusField(this.form, field, message, isFocused);
    };
    const isFound = field !== "" && toField(this.isMoving);
    this.pane.fail(error, { retry: () => void this.run(), toField: isFound ? toField : null });
    const explained = this.tab?.explain?.(message, this.form);
    if (explained) this.pane.head.append(explained);
  }

  /** Forget the last answer if a part of a new one stands in its place. */
  dropOld() {
    if (this.pane.state === "streaming") this.context.answer = null;
  }

  /** Stop what runs; the server ends its work. */
  stop() {
    if (!this.controller) return false;
    this.controller.abort();
    this.controller = null;
    this.dropOld();
    const isPart = this.pane.state === "streaming";
    const below = isPart ? " Below is what had come." : " The answer below is of the request before.";
    this.pane.enter("stopped", h("p", {}, `Stopped.${isPart || this.context.answer ? below : ""}`));
    announce("Stopped.");
    return true;
  }
}

/** The page with all its tabs. */
export class Page {
  /** @param {Record<string, Option[]>} options of each call, by its path */
  constructor(options) {
    this.options = options;
    this.slots = TABS.map((one) => new Slot(this, one.name, one.title));
    /** @type {Slot} */
    this.current = this.slots[0];
    this.model = "";
    /** Name of the first model of the server; "" until it has said so. */
    this.first = "";
    /** Name of the model that a link asks for. */
    this.wanted = "";
    /** @type {((slot: Slot) => void)[]} called with the slot whose inputs or answer have changed */
    this.listeners = [];
  }

  /**
   * Return a body with the name of the model, where there are several.
   *
   * @param {object} body
   */
  named(body) {
    return this.model ? { model: this.model, ...body } : body;
  }

  /**
   * Return what answers do not say of the model that is asked.
   *
   * @returns {Promise<Model>}
   */
  async describeModel() {
    const name = this.model || this.first;
    try {
      const found = await ask(name ? `/tokenizer_info?model=${encodeURIComponent(name)}` : "/tokenizer_info");
      return { tolerance: found.tolerance || UNKNOWN, hasChat: found.chat_template !== null };
    } catch {
      return { tolerance: UNKNOWN, hasChat: true }; // the answer is there all the same
    }
  }

  /**
   * Ask a model from now on, if the server has it.
   *
   * @param {string} name
   */
  choose(name) {
    this.wanted = name;
    const menu = document.getElementById("models");
    if (!(menu instanceof HTMLSelectElement) || ![...menu.options].some((one) => one.value === name)) return;
    menu.value = this.model = name;
  }

  /** Tell listeners that something was typed. */
  changed() {
    for (const one of this.listeners) one(this.current);
  }

  /**
   * Tell listeners that an answer has come.
   *
   * @param {Slot} slot
   */
  answered(slot) {
    for (const one of this.listeners) one(slot);
  }

  /**
   * Open a tab.
   *
   * @param {string} name
   * @param {boolean} [isFocused] whether its button gets the focus
   */
  async open(name, isFocused = false) {
    const slot = this.slots.find((one) => one.name === name) ?? this.slots[0];
    this.current = slot;
    for (const one of this.slots) {
      const isOpen = one === slot;
      one.button.setAttribute("aria-selected", String(isOpen));
      one.button.tabIndex = isOpen ? 0 : -1;
      one.panel.hidden = !isOpen;
    }
    document.title = `${slot.button.textContent} – selectrie`;
    if (isFocused) slot.button.focus();
    if (!slot.tab) {
      try {
        const loaded = await TABS[this.slots.indexOf(slot)].load();
        if (!slot.tab) slot.build(loaded);
      } catch {
        slot.panel.replaceChildren(
          h("p", { class: "lead" }, "The server does not answer, so this tab could not be loaded."),
          h("button", { type: "button", onclick: () => location.reload() }, "Load the page again"),
        );
      }
    }
    this.changed();
    return slot;
  }

  /** Put the page together. */
  start() {
    const list = h(
      "div",
      { role: "tablist", "aria-label": "What to ask" },
      this.slots.map((one) => one.button),
    );
    for (const one of this.slots) one.button.addEventListener("click", () => void this.open(one.name));
    list.addEventListener("keydown", (event) => this.onTabKey(event));
    const main = /** @type {HTMLElement} */ (document.getElementById("main"));
    main.replaceChildren(list, ...this.slots.map((one) => one.panel));
    document.addEventListener("key", () => void this.listModels());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        void this.current.run();
      } else if (event.key === "Escape" && !closeTips()) this.current.stop();
    });
  }

  /** @param {KeyboardEvent} event */
  onTabKey(event) {
    const at = this.slots.indexOf(this.current);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const slot = /** @type {Slot} */ (this.slots.at(to % this.slots.length));
    void this.open(slot.name, true);
  }

  /** Ask which models there are, and offer a menu of several. */
  async listModels() {
    const place = /** @type {HTMLElement} */ (document.getElementById("model"));
    try {
      const names = (await ask("/v1/models")).data.map((/** @type {{id: string}} */ one) => one.id);
      const menu = h(
        "select",
        { id: "models", autocomplete: "off" },
        names.map((/** @type {string} */ one) => h("option", {}, one)),
      );
      menu.addEventListener("change", () => {
        this.model = menu.value;
        this.changed();
      });
      if (!names.length) {
        place.replaceChildren(h("span", {}, "The model is being loaded."));
        setTimeout(() => void this.listModels(), LOADING_MS);
        return;
      }
      if (names.length > 1) this.model = names[0];
      this.first = names[0];
      place.replaceChildren(
        ...(names.length > 1
          ? [h("label", { for: "models" }, "Model"), menu]
          : [h("span", {}, "Model "), h("bdi", {}, names[0])]),
      );
      if (this.wanted) this.choose(this.wanted);
    } catch (error) {
      if (error instanceof ServerError && error.status === 401) place.replaceChildren(keyForm());
      else place.replaceChildren(h("span", { class: "wrong" }, "The server does not answer."));
    }
  }
}

/** Show the answer of the example that is stored with the page. */
async function showExample(/** @type {Slot} */ slot) {
  try {
    const stored = await (await fetch(address("/page/example.json"))).json();
    if (slot.context.answer || slot.pane.state !== "empty") return;
    slot.context.request = { path: stored.path, body: stored.body, state: slot.tab?.example ?? {} };
    slot.show(stored.answer, null, [
      h("p", { class: "took" }, "Answered before, by the model that comes with selectrie. Run asks this server."),
    ]);
    slot.context.answer = null;
  } catch {
    slot.pane.enter("empty", h("p", {}, "An example is filled in. Run asks this server."));
  }
}

/** Load the page. */
async function start() {
  const options = await (await fetch(address("/page/options.json"))).json();
  const page = new Page(options);
  page.start();
  const slot = await page.open("select");
  void page.listModels();
  if (!(await install(page))) await showExample(slot);
  return page;
}

export const page = start();
page.catch((error) => {
  const again = h("button", { type: "button", onclick: () => location.reload() }, "Load the page again");
  const said = h("p", { class: "lead" }, `The page could not be loaded: ${error.message} `);
  document.getElementById("main")?.replaceChildren(said, again);
});
