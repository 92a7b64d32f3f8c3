// What every JavaScript provider needs: failures, and wrappers that turn exceptions into them.
//
// An exception that leaves an export is a trap: its message is lost and it counts against the provider.
// So each call runs inside `guarded`, and what it throws becomes a failure of the contract.

import { emit } from "egress-proxies:provider/host-log@0.1.0";

/** A failure of the contract, to be thrown. `reason` is a tag, or `{tag, val}` for those with a payload. */
export class Failure extends Error {
  constructor(reason, message, details = {}) {
    super(message);
    this.payload = {
      reason: typeof reason === "string" ? { tag: reason } : reason,
      message,
      retryAfterMs: details.retryAfterMs,
      upstreamStatus: details.upstreamStatus,
      upstreamCode: details.upstreamCode,
      extra: [],
    };
  }
}

export const invalid = (pointer, message) => new Failure({ tag: "invalid", val: pointer }, message);

/** By HTTP status alone; look at the upstream's own code first. */
export function fromStatus(what, response, code) {
  const reasons = { 401: "denied", 403: "denied", 404: "missing", 409: "busy", 429: "throttled" };
  const { status } = response;
  const reason = reasons[status] ?? (status >= 500 ? "transient" : "permanent");
  const seconds = Number(response.headers.get("retry-after") ?? NaN);
  const retryAfterMs = Number.isInteger(seconds) && seconds >= 0 && seconds < 4_000_000 ? seconds * 1000 : undefined;
  return new Failure(reason, `${what}: HTTP ${status}`, { upstreamStatus: status, upstreamCode: code, retryAfterMs });
}

export const toObject = (pairs) => Object.fromEntries(pairs.map(({ key, value }) => [key, value]));
export const toPairs = (object) => Object.entries(object).map(([key, value]) => ({ key, value }));

/** All functions of an interface, none of which lets an exception out. */
export function guarded(functions) {
  const wrap = (name, call) => async (...args) => {
    try {
      return await call(...args);
    } catch (error) {
      if (error instanceof Failure) throw error.payload;
      emit("error", `${name}: ${error?.stack ?? error}`, []);
      throw new Failure({ tag: "other", val: "exception" }, `${name}: ${error?.message ?? error}`).payload;
    }
  };
  return Object.fromEntries(Object.entries(functions).map(([name, call]) => [name, wrap(name, call)]));
}
