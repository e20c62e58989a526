// @ts-check
/**
 * A request of a tab as something to run elsewhere: curl, Python, or the command.
 *
 * No key is ever written; curl reads it from `$SELECTRIE_API_KEY`. Only the page needs drawings,
 * so they are left out, and what they imply for the search is written out. Everything else of
 * the request is there, or the copy says what it cannot say.
 */

import { address, key } from "./api.js";
import { FieldError } from "./form.js";

/** @typedef {{path: string, body: Record<string, any>}} Request */

/** @typedef {Record<string, import("./form.js").Option[]>} Options of each call, by its path */

/** The number of choices up to which the server scores each of them for a drawing. */
const SCORED_ALL = 200;
const OURS = new Set(["drawing", "fold", "stream", "model", "logprobs", "top_logprobs"]);
/** Records of options by their fields in a body, with their classes in Python. */
const RECORDS = /** @type {Record<string, string>} */ ({
  search: "SearchParams",
  prompting: "PromptParams",
  beam: "BeamSearchParams",
  rendering: "RenderParams",
  rule: "ScoringRule",
  think: "Thinking",
});
const READERS = /** @type {Record<string, string>} */ ({
  grammar: "from_gbnf",
  regex: "from_regex",
  json_schema: "from_json_schema",
});
/** The methods of `Engine`, and the commands, by paths. */
const CALLS = /** @type {Record<string, {method: string, command: string, first: string[]}>} */ ({
  "/v1/select": { method: "select", command: "select", first: ["prompt", "choices"] },
  "/v1/rank": { method: "rank", command: "rank", first: ["prompt", "choices"] },
  "/v1/beam": { method: "beam_search", command: "beam", first: ["prompt"] },
  "/v1/decisions": { method: "decide", command: "decide", first: ["state", "questions"] },
  "/v1/render": { method: "render", command: "render", first: ["template", "values"] },
  "/v1/completions": { method: "generate", command: "generate", first: ["prompt"] },
});
/** Flags that are not named as the option is. */
const FLAGS = /** @type {Record<string, string>} */ ({
  n: "-n",
  budget_nodes: "--budget",
  name: "--rule",
  choices: "--choice",
  template_args: "--template-arg",
  k: "--top",
  ignore_eos: "--ignore-eog",
});
/** Options that the commands have no flag for. */
const NO_FLAG = new Set([
  "prompting.add_bos",
  "search.canonical_only",
  "search.max_tokens",
  "beam.canonical_only",
  "beam.merge_equal_text",
  "tokenizations",
  "dialect",
  "rendering.parse_special",
  "list_options",
  "think.n",
  "think.max_tokens",
  "think.start",
  "think.stop",
  "think.seed",
  "think.shared",
  "chat_template_kwargs",
]);
/** Options that are no arguments of the methods in Python. */
const NO_ARGUMENT = new Set(["dialect", "confidence", "chat_template_kwargs"]);
/** Options of generation by the records that Python has for them. */
const STOPPING = /** @type {Record<string, string>} */ ({ min_tokens: "min_tokens", ignore_eos: "ignore_eog" });

/**
 * Return the request without what only the page needs. A select with a drawing scores every
 * choice of a short list, so without one it has to say so.
 *
 * @param {Request} request
 * @param {Options} options
 * @returns {Record<string, any>}
 */
export function plainBody(request, options) {
  const body = Object.fromEntries(Object.entries(request.body).filter(([name]) => !OURS.has(name)));
  if (request.path !== "/v1/select" || !request.body.drawing || !(body.choices?.length <= SCORED_ALL)) return body;
  const usual = defaultOf(options, request.path, "search.stop");
  return (body.search?.stop ?? usual) === usual ? { ...body, search: { ...body.search, stop: "all" } } : body;
}

/**
 * Return the default of an option.
 *
 * @param {Options} options
 * @param {string} path of the call
 * @param {string} name
 */
function defaultOf(options, path, name) {
  return options[path].find((one) => one.path === name)?.default;
}

/**
 * Return a text as one word of a POSIX shell.
 *
 * @param {string} text
 */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * @param {Request} request
 * @param {string} model that is chosen on the page; "" if there is one
 * @param {Options} options
 */
export function asCurl(request, model, options) {
  const plain = plainBody(request, options);
  const body = JSON.stringify(model ? { model, ...plain } : plain);
  const lines = [`curl -sS ${quoted(address(request.path))}`, "-H 'Content-Type: application/json'"];
  if (key()) lines.push('-H "Authorization: Bearer $SELECTRIE_API_KEY"');
  lines.push(`--data-binary ${quoted(body)}`);
  return lines.join(" \\\n  ") + "\n";
}

/**
 * Return a value as a literal of Python.
 *
 * @param {any} value
 * @returns {string}
 */
export function pythonOf(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value)
      .map(([name, one]) => `${pythonOf(name)}: ${pythonOf(one)}`)
      .join(", ")}}`;
  }
  return JSON.stringify(value).replace(/[\u007f-\u{10ffff}]/gu, escaped);
}

/** @param {string} found a character that an editor may not show, kept where it is a letter */
function escaped(found) {
  if (/\p{L}|\p{N}|\p{S}|\p{P}/u.test(found)) return found;
  const code = /** @type {number} */ (found.codePointAt(0));
  return code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/**
 * @param {Request} request
 * @param {string} model the file or name that the server gives
 * @param {Options} options
 */
export function asPython(request, model, options) {
  const { path, body } = ours(request, options);
  const call = CALLS[path];
  const given = [];
  let isPlaced = true; // behind an argument that is not given, the others have names
  for (const name of call.first) {
    if (body[name] === undefined) isPlaced = false;
    else {
      const value = name === "questions" ? questionsOf(body[name]) : pythonOf(body[name]);
      given.push(isPlaced ? value : `${name}=${value}`);
    }
    delete body[name];
  }
  if (path === "/v1/completions") given.push(samplingOf(body), ...othersOf(body));
  for (const [name, value] of Object.entries(body)) {
    if (NO_ARGUMENT.has(name)) throw new FieldError(name, "Python writes this otherwise; copy curl");
    if (name in READERS) given.push(`grammar=selectrie.Grammar.${READERS[name]}(${pythonOf(value)})`);
    else if (name in RECORDS && value && typeof value === "object")
      given.push(`${name}=${recordOf(RECORDS[name], value)}`);
    else given.push(`${name}=${pythonOf(value)}`);
  }
  const inner = given.map((one) => `\n    ${one},`).join("");
  return `import selectrie\n\n${whereOf(model)}llm = selectrie.load(${pythonOf(model)})\nresult = llm.${call.method}(${inner}\n)\nprint(result)\n`;
}

/**
 * @param {string} name of the class
 * @param {Record<string, any>} fields
 */
function recordOf(name, fields) {
  return `selectrie.${name}(${Object.entries(fields)
    .map(([field, value]) => `${field}=${pythonOf(value)}`)
    .join(", ")})`;
}

/**
 * Return the arguments of Python for options of generation that belong to its other records.
 *
 * @param {Record<string, any>} body changed
 */
function othersOf(body) {
  const given = [];
  const stopping = Object.keys(STOPPING).filter((name) => name in body);
  if (stopping.length) {
    // A record of its own takes what ends the text along.
    const all = { max_tokens: body.max_tokens, stop: body.stop };
    const named = Object.entries(all).filter(([, value]) => value !== undefined);
    const record = Object.fromEntries([...named, ...stopping.map((name) => [STOPPING[name], body[name]])]);
    for (const name of ["max_tokens", "stop", ...stopping]) delete body[name];
    given.push(`stopping=${recordOf("StopParams", record)}`);
  }
  if (body.best_of !== undefined) given.push(`options=${recordOf("GenerationParams", { best_of: body.best_of })}`);
  delete body.best_of;
  return given;
}

/** What is drawn over HTTP where nothing is set, which Python and the command set otherwise. */
const UNCHANGED = { temperature: 1, top_k: 0, top_p: 1, min_p: 0 };
const SAMPLING = [...Object.keys(UNCHANGED), "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty"];

/**
 * Return the request as Python and the command have it: chats are completions of a user's
 * message, options of sampling have their names, and HTTP's defaults are written out.
 *
 * @param {Request} request
 * @param {Options} options
 * @returns {Request}
 */
function ours(request, options) {
  const body = plainBody(request, options);
  if (request.path !== "/v1/completions" && request.path !== "/v1/chat/completions")
    return { path: request.path, body };
  const { messages, prompt, repetition_penalty: penalty, ...others } = body;
  const asked = messages
    ? { user: messages[0].content }
    : { prompt, max_tokens: defaultOf(options, "/v1/completions", "max_tokens") };
  const renamed = penalty === undefined ? {} : { repeat_penalty: penalty };
  return { path: "/v1/completions", body: { ...asked, ...UNCHANGED, ...others, ...renamed } };
}

/**
 * Take the options of sampling out of a body, and return the argument that Python has for them.
 *
 * @param {Record<string, any>} body changed
 */
function samplingOf(body) {
  const drawn = Object.fromEntries(SAMPLING.filter((name) => name in body).map((name) => [name, body[name]]));
  for (const name of SAMPLING) delete body[name];
  return `sampling=${recordOf("SamplingParams", drawn)}`;
}

/** The classes of questions in Python, by their types. */
const KINDS = new Map([
  ["choice", "Choice"],
  ["predicate", "Predicate"],
  ["score", "Score"],
]);
/** Fields of questions that Python has under the same names. */
const SAME = new Set(["yes", "no", "yes_when", "no_when", "low", "high", "cue"]);

/**
 * Return questions as objects of Python; raise `FieldError` for one that Python writes otherwise.
 *
 * @param {Record<string, any>} questions by their names, as the body has them
 */
function questionsOf(questions) {
  const shown = Object.entries(questions).map(([name, { type, instructions = "", ...rest }]) => {
    const words = [pythonOf(instructions)];
    const kind = KINDS.get(type);
    const others = [];
    for (const [field, value] of Object.entries(rest)) {
      const isPlain = !Array.isArray(value) || value.every((one) => typeof one !== "object");
      if ((field === "choices" || field === "levels") && isPlain) words.push(pythonOf(value));
      else if (SAME.has(field)) others.push(`${field}=${pythonOf(value)}`);
      else if (value !== null && value !== false)
        throw new FieldError("questions", `Python writes \`${field}\` of ${name} otherwise; copy curl or the command`);
    }
    if (!kind)
      throw new FieldError(
        "questions",
        `Python writes questions of the type ${type} otherwise; copy curl or the command`,
      );
    return `${pythonOf(name)}: selectrie.${kind}(${[...words, ...others].join(", ")})`;
  });
  return `{${shown.join(", ")}}`;
}

/** @param {string} model @returns {string} a comment where the name is no path */
function whereOf(model) {
  return model === "embedded"
    ? ""
    : "# The server gives the name of its model; write the path of the file on your machine.\n";
}

/**
 * @param {Request} request
 * @param {string} model the file or name that the server gives
 * @param {Options} options
 */
export function asCommand(request, model, options) {
  const { path, body } = ours(request, options);
  const call = CALLS[path];
  /** @type {string[]} */
  const files = [];
  const words = [`selectrie ${call.command}`];
  if (model !== "embedded") words.push(`-m ${quoted(model)}`);
  const file = (/** @type {string} */ name, /** @type {string} */ text) => {
    files.push(`printf %s ${quoted(text)} > ${name}\n`);
    return name;
  };
  const missing = [];
  for (const [name, value] of Object.entries(flat(body))) {
    const option = /** @type {string} */ (name.split(".").pop());
    const flag = FLAGS[option] ?? `--${option.replaceAll("_", "-")}`;
    if (name === "grammar") words.push(`--grammar ${file("grammar.gbnf", value)}`);
    else if (name === "json_schema") words.push(`--json-schema ${file("schema.json", JSON.stringify(value))}`);
    else if (name === "prior") words.push(`--prior ${file("prior.json", JSON.stringify(value))}`);
    else if (name === "questions") words.splice(1, 0, file("questions.json", JSON.stringify(value)));
    else if (name === "template") words.splice(1, 0, file("template.txt", value));
    else if (name === "values") words.push(`--var-file ${file("values.json", JSON.stringify(value))}`);
    else if (name === "state")
      words.push(
        typeof value === "string"
          ? `--state ${quoted(value)}`
          : `--state-file ${file("state.json", JSON.stringify(value))}`,
      );
    else if (name === "choices")
      words.push(
        ...value.map((/** @type {any} */ one) => `-c ${quoted(String(one))}`),
        ...(value.includes("") ? ["--allow-empty"] : []),
      );
    else if (NO_FLAG.has(name)) missing.push(name);
    else if (value === true) words.push(flag);
    else if (Array.isArray(value)) words.push(...value.map((one) => `${flag} ${quoted(String(one))}`));
    else if (value && typeof value === "object") missing.push(name);
    else words.push(`${flag} ${quoted(String(value))}`);
  }
  if (missing.length) throw new FieldError(missing[0], "the command has no flag for this; copy curl or Python");
  return `${whereOf(model)}${files.join("")}${words.join(" \\\n  ")}\n`;
}

/**
 * Return the fields of a body with those of its records, named by their paths.
 *
 * @param {Record<string, any>} body
 * @returns {Record<string, any>}
 */
function flat(body) {
  /** @type {[string, any][]} */
  const found = [];
  for (const [name, value] of Object.entries(body)) {
    if (name in RECORDS && value && typeof value === "object")
      found.push(
        ...Object.entries(value).map(([field, one]) => /** @type {[string, any]} */ ([`${name}.${field}`, one])),
      );
    else if (name === "rule") found.push(["rule.name", value]);
    else found.push([name, value]);
  }
  return Object.fromEntries(found);
}
