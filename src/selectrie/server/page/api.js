// @ts-check
/**
 * Requests to the server that this page came from.
 *
 * The key is kept in `sessionStorage`, so it is gone with the browser's tab. An aborted request
 * closes its connection, and the server ends its work.
 */

const BASE = new URL("../", import.meta.url);
const KEY = "selectrie.key";

/** An answer of the server that is an error. */
export class ServerError extends Error {
  /**
   * @param {number} status
   * @param {{message?: string, code?: string, param?: string | null}} error
   * @param {number} retryAfterS seconds after which a request may be sent again; 0 if never
   */
  constructor(status, error, retryAfterS = 0) {
    super(error.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.code = error.code ?? String(status);
    this.field = error.param ?? "";
    this.retryAfterS = retryAfterS;
  }
}

/** The server did not answer, or its answer ended early. */
export class GoneError extends Error {}

/** Return the key of this session; "" for none. */
export function key() {
  return sessionStorage.getItem(KEY) ?? "";
}

/** @param {string} value "" forgets it */
export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/**
 * Return the address of a path of the server, also where it is served below another path.
 *
 * @param {string} path
 */
export function address(path) {
  return new URL(path.replace(/^\//, ""), BASE).href;
}

/**
 * Return the JSON that a path answers with.
 *
 * @param {string} path
 * @param {object | null} [body] sent by POST; without one the request is a GET
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function ask(path, body = null, signal = undefined) {
  const response = await send(path, body, signal);
  try {
    return await response.json();
  } catch (error) {
    throw lost(error, signal);
  }
}

/**
 * Yield the events of an answer that is a stream, without the closing `[DONE]`.
 *
 * @param {string} path
 * @param {object} body
 * @param {AbortSignal} [signal]
 * @returns {AsyncGenerator<any, void, void>}
 */
export async function* stream(path, body, signal = undefined) {
  const response = await send(path, { ...body, stream: true }, signal);
  if (!response.body) throw new GoneError("the answer has no body");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let isWhole = false; // the end is still read: to cancel before it would look like a client that leaves
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => Promise.reject(lost(error, signal)));
      if (done && isWhole) return;
      if (done) throw new GoneError("the answer ended early");
      const frames = (rest + value).split("\n\n");
      rest = frames.pop() ?? "";
      for (const frame of frames) {
        const line = frame.split("\n").find((one) => one.startsWith("data: "));
        if (!line) continue; // a comment that keeps the connection open
        if (line === "data: [DONE]") {
          isWhole = true;
          continue;
        }
        const event = JSON.parse(line.slice(6));
        if (event.error) throw new ServerError(response.status, event.error);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * @param {string} path
 * @param {object | null} body
 * @param {AbortSignal | undefined} signal
 */
async function send(path, body, signal) {
  /** @type {Record<string, string>} */
  const headers = { accept: body ? "application/json, text/event-stream" : "application/json" };
  if (key()) headers.authorization = `Bearer ${key()}`;
  if (body) headers["content-type"] = "application/json";
  /** @type {Response} */
  let response;
  try {
    response = await fetch(address(path), {
      method: body ? "POST" : "GET",
      headers,
      body: body && JSON.stringify(body),
      signal,
      cache: body ? "no-store" : "default",
      credentials: "same-origin",
    });
  } catch (error) {
    throw lost(error, signal);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const retry =
    response.headers.get("x-should-retry") === "false" ? 0 : Number(response.headers.get("retry-after") ?? 0);
  throw new ServerError(response.status, answer.error ?? {}, retry || 0);
}

/**
 * Return the error of a connection that failed; that of an aborted request is left as it is.
 *
 * @param {unknown} error
 * @param {AbortSignal | undefined} signal
 */
function lost(error, signal) {
  if (signal?.aborted) return signal.reason;
  return new GoneError(error instanceof Error ? error.message : String(error));
}
