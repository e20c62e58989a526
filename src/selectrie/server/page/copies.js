// @ts-check
/**
 * A request of a tab as something to run elsewhere: curl, Python, or the command.
 *
 * No key is ever written; curl reads it from `$SELECTRIE_API_KEY`. Drawings are the page's own
 * wish, so they are left out: everything else of the request is there, or the copy says what it
 * cannot say.
 */

import { address, key } from "./api.js";
import { FieldError } from "./form.js";

/** @typedef {{path: string, body: Record<string, any>}} Request */

/** What `/v1/completions` draws at most where nothing is set. */
const MAX_TOKENS = 16;
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
  list_options: "",
});

/**
 * Return the request without what only the page wants.
 *
 * @param {Request} request
 * @returns {Record<string, any>}
 */
export function plainBody(request) {
  return Object.fromEntries(Object.entries(request.body).filter(([name]) => !OURS.has(name)));
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
 */
export function asCurl(request, model) {
  const body = JSON.stringify(model ? { model, ...plainBody(request) } : plainBody(request));
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
 */
export function asPython(request, model) {
  const { path, body } = ours(request);
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
  if (path === "/v1/completions") forGeneration(body);
  for (const [name, value] of Object.entries(body)) {
    if (name in READERS) given.push(`grammar=selectrie.Grammar.${READERS[name]}(${pythonOf(value)})`);
    else if (name in RECORDS && value && typeof value === "object")
      given.push(`${name}=${recordOf(RECORDS[name], value)}`);
    else given.push(`${name}=${typeof value === "string" && value.startsWith("selectrie.") ? value : pythonOf(value)}`);
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

/** What is drawn over HTTP where nothing is set, which Python and the command set otherwise. */
const UNCHANGED = { temperature: 1, top_k: 0, top_p: 1, min_p: 0 };
const SAMPLING = [...Object.keys(UNCHANGED), "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty"];

/**
 * Return the request as Python and the command have it: chats are completions of a user's
 * message, options of sampling have their names, and HTTP's defaults are written out.
 *
 * @param {Request} request
 * @returns {Request}
 */
function ours(request) {
  const body = plainBody(request);
  if (request.path !== "/v1/completions" && request.path !== "/v1/chat/completions")
    return { path: request.path, body };
  const { messages, prompt, repetition_penalty: penalty, ...others } = body;
  const asked = messages ? { user: messages[0].content } : { prompt, max_tokens: MAX_TOKENS };
  const renamed = penalty === undefined ? {} : { repeat_penalty: penalty };
  return { path: "/v1/completions", body: { ...asked, ...UNCHANGED, ...others, ...renamed } };
}

/**
 * Put the options of sampling into the record that Python has for them.
 *
 * @param {Record<string, any>} body changed
 */
function forGeneration(body) {
  const drawn = Object.fromEntries(SAMPLING.filter((name) => name in body).map((name) => [name, body[name]]));
  for (const name of SAMPLING) delete body[name];
  body.sampling = recordOf("SamplingParams", drawn);
}

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
    const kind = /** @type {Record<string, string>} */ ({ choice: "Choice", predicate: "Predicate", score: "Score" })[
      type
    ];
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
 */
export function asCommand(request, model) {
  const { path, body } = ours(request);
  const call = CALLS[path];
  /** @type {string[]} */
  const files = [];
  const words = [`selectrie ${call.command}`];
  if (model !== "embedded") words.push(`-m ${quoted(model)}`);
  const file = (/** @type {string} */ name, /** @type {string} */ text) => {
    files.push(`cat > ${name} <<'END_OF_FILE'\n${text.replace(/\n$/, "")}\nEND_OF_FILE\n`);
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
    else if (!flag) missing.push(name);
    else if (value === true) words.push(flag);
    else if (Array.isArray(value)) words.push(...value.map((one) => `${flag} ${quoted(String(one))}`));
    else if (value && typeof value === "object") missing.push(name);
    else words.push(`${flag} ${quoted(String(value))}`);
  }
  const note = missing.length ? `# The command has no flag for ${missing.join(", ")}.\n` : "";
  return `${whereOf(model)}${note}${files.join("")}${words.join(" \\\n  ")}\n`;
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
