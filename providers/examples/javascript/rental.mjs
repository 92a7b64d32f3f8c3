// A provider for the rental API of ../README.md.

import { Failure, fromStatus, guarded, invalid, toObject, toPairs } from "./provider.mjs";

const PATH = "/v1/proxies";
const DEFAULT_ORIGIN = "http://127.0.0.1:8099";
const STATES = { starting: "provisioning", up: "running", ending: "deleting", broken: "failed" };

const CONFIG_SCHEMA = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  additionalProperties: false,
  properties: {
    origin: {
      description: "Where the rental API is: scheme, host and port, without a path. Default: upstream.py on this machine.",
      type: "string",
      pattern: "^https?://[^/?#@]+$",
    },
  },
};

function instance(proxy) {
  return {
    id: proxy.name,
    name: proxy.name,
    incarnation: proxy.serial,
    state: STATES[proxy.state] ? { tag: STATES[proxy.state] } : { tag: "other", val: String(proxy.state) },
    endpoints: proxy.address
      ? [{ address: proxy.address, port: proxy.port, protocol: "http", scope: "public", credentials: undefined, extra: [] }]
      : [],
    createdAt: proxy.createdAt,
    location: undefined,
    problem: undefined,
    tags: toPairs(proxy.tags),
    extra: [],
  };
}

const originOf = (ctx) => JSON.parse(ctx.config).origin ?? DEFAULT_ORIGIN;
const isOwned = (proxy, owner) => owner.length > 0 && owner.every(({ key, value }) => proxy.tags[key] === value);

/** The upstream of one call. */
class Rental {
  constructor(ctx) {
    this.origin = originOf(ctx);
    // fetch has no time-out of its own here; the host ends the call at its deadline in any case.
    this.headers = { accept: "application/json", "x-request-id": ctx.requestId };
  }

  async send(what, method, path, body) {
    const headers = body ? { ...this.headers, "content-type": "application/json" } : this.headers;
    let response, answer;
    try {
      response = await fetch(this.origin + PATH + path, { method, headers, body: body && JSON.stringify(body) });
      answer = await response.json();
    } catch (error) {
      // No answer, or not all of it, or not JSON: what upstream did is not known.
      throw new Failure("transient", `${what}: ${error?.message ?? error}`, { upstreamStatus: response?.status });
    }
    return { response, answer, code: typeof answer?.error === "string" ? answer.error : undefined };
  }

  /** The proxy of that name; undefined only if upstream says that there is none. */
  async find(name) {
    const what = "looking at the proxy";
    const { response, answer, code } = await this.send(what, "GET", `/${encodeURIComponent(name)}`);
    if (response.ok && answer?.name === name) return answer;
    if (response.status === 404 && code === "unknown-proxy") return undefined;
    if (response.ok) throw new Failure("transient", `${what}: the answer is not the proxy`);
    throw fromStatus(what, response, code);
  }
}

export const meta = {
  // describe has no failure in the contract, so it is not guarded.
  describe() {
    return {
      name: "rental-javascript",
      version: "0.1.0",
      summary: "Proxies of the rental API; an example in JavaScript",
      configSchema: JSON.stringify(CONFIG_SCHEMA),
      placementSchema: undefined,
      parametersSchema: undefined,
      bootstrapMaxBytes: 0,
      listLagMs: 0,
      capabilities: [],
      extra: [],
    };
  },

  ...guarded({
    validateConfig(ctx) {
      const origin = originOf(ctx);
      // The schema has checked its form; what is left is what a pattern cannot say.
      try {
        new URL(origin);
      } catch {
        throw invalid("/config/origin", `/config/origin: ${origin} is not an address`);
      }
      const need = { origin, methods: ["GET", "POST", "DELETE"], pathPrefix: PATH, auth: "none", why: "rent, look at and return proxies", extra: [] };
      return { scope: origin, egress: [need], warnings: [], extra: [] };
    },

    validateCreate(_ctx, request) {
      return { id: request.name, location: undefined, warnings: [], extra: [] };
    },
  }),
};

export const lifecycle = guarded({
  async create(ctx, request) {
    const rental = new Rental(ctx);
    const body = { name: request.name, port: request.port, tags: toObject(request.tags) };
    const { response, answer, code } = await rental.send("renting the proxy", "POST", "", body);
    if (response.status === 201) return instance(answer);
    if (code === "limit") throw new Failure("quota", "the account has no more proxies", { upstreamCode: code });
    if (code !== "exists") throw fromStatus("renting the proxy", response, code);
    const found = await rental.find(request.name);
    if (!found) throw new Failure("busy", "a proxy of this name has just gone");
    if (!isOwned(found, request.owner)) throw new Failure("name-taken", `proxy ${request.name} is somebody else's`);
    if (found.state === "ending") throw new Failure("busy", `proxy ${request.name} is being returned`);
    return instance(found);
  },

  async get(ctx, target) {
    const found = await new Rental(ctx).find(target.id);
    const isMeant = found && (target.incarnation === undefined || target.incarnation === found.serial);
    return isMeant ? { tag: "found", val: instance(found) } : { tag: "absent", val: undefined };
  },

  async delete(ctx, target) {
    const rental = new Rental(ctx);
    const found = await rental.find(target.id);
    const isMeant = found && (target.incarnation === undefined || target.incarnation === found.serial);
    if (!isMeant || !isOwned(found, target.owner)) return { tag: "gone" };
    if (found.state === "ending") return { tag: "in-progress", val: 1000 };
    const path = `/${encodeURIComponent(target.id)}?serial=${encodeURIComponent(found.serial)}`;
    const { response, code } = await rental.send("returning the proxy", "DELETE", path);
    if (response.ok) return { tag: "in-progress", val: 1000 };
    if (code === "unknown-proxy" || code === "other-serial") return { tag: "gone" };
    throw fromStatus("returning the proxy", response, code);
  },

  async listByTag(ctx, request) {
    if (request.untaggedPrefix !== undefined) throw new Failure("unsupported", "the rental API cannot list by prefix");
    const query = new URLSearchParams(request.owner.map(({ key, value }) => ["tag", `${key}:${value}`]));
    query.append("limit", String(Math.min(request.limit, 100)));
    if (request.cursor !== undefined) query.append("after", request.cursor);
    const { response, answer, code } = await new Rental(ctx).send("listing proxies", "GET", `?${query}`);
    if (!response.ok) throw fromStatus("listing proxies", response, code);
    // No list is not an empty list.
    if (!Array.isArray(answer?.items)) throw new Failure("transient", "listing proxies: the answer is no list");
    const items = answer.items.filter((proxy) => isOwned(proxy, request.owner)).map(instance);
    return { items, next: answer.next, unreachable: [], extra: [] };
  },
});
