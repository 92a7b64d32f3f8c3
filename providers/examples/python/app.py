"""A provider for the rental API of ../README.md."""

import json
from urllib.parse import quote, urlencode, urlsplit

from provider import failure, from_status, guarded, invalid, send_json
from wit_world import exports
from wit_world.imports import model

PATH = "/v1/proxies"
DEFAULT_ORIGIN = "http://127.0.0.1:8099"
STATES = {
    "starting": model.InstanceState_Provisioning,
    "up": model.InstanceState_Running,
    "ending": model.InstanceState_Deleting,
    "broken": model.InstanceState_Failed,
}
CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "origin": {
            "description": "Where the rental API is: scheme, host and port, without a path. Default: upstream.py on this machine.",
            "type": "string",
            "pattern": "^https?://[^/?#@]+$",
        },
    },
}


def origin_of(ctx):
    return json.loads(ctx.config).get("origin", DEFAULT_ORIGIN)


def send(ctx, what, method, path="", body=None):
    return send_json(ctx, what, method, origin_of(ctx), PATH + path, body)


def find(ctx, name):
    """The proxy of that name; None only if upstream says that there is none."""
    what = "looking at the proxy"
    answer = send(ctx, what, "GET", f"/{quote(name, safe='')}")
    if answer.status == 200 and isinstance(answer.body, dict) and answer.body.get("name") == name:
        return answer.body
    if answer.status == 404 and answer.code == "unknown-proxy":
        return None
    if answer.status == 200:
        raise failure(model.Reason_Transient(), f"{what}: the answer is not the proxy")
    raise from_status(what, answer)


def is_owned(proxy, owner):
    return bool(owner) and all(proxy["tags"].get(tag.key) == tag.value for tag in owner)


def is_meant(proxy, target):
    return proxy is not None and target.incarnation in (None, proxy["serial"])


def instance(proxy):
    endpoints = []
    if proxy.get("address"):
        endpoints.append(model.Endpoint(proxy["address"], proxy["port"], "http", "public", None, []))
    state = STATES.get(proxy["state"])
    return model.Instance(
        id=proxy["name"],
        name=proxy["name"],
        incarnation=proxy["serial"],
        state=state() if state else model.InstanceState_Other(str(proxy["state"])),
        endpoints=endpoints,
        created_at=proxy["createdAt"],
        location=None,
        problem=None,
        tags=[model.Pair(key, value) for key, value in proxy["tags"].items()],
        extra=[],
    )


class Meta(exports.Meta):
    # describe has no failure in the contract, so it is not guarded.
    def describe(self):
        return model.Description(
            name="rental-python",
            version="0.1.0",
            summary="Proxies of the rental API; an example in Python",
            config_schema=json.dumps(CONFIG_SCHEMA),
            placement_schema=None,
            parameters_schema=None,
            bootstrap_max_bytes=0,
            list_lag_ms=0,
            capabilities=[],
            extra=[],
        )

    @guarded
    def validate_config(self, ctx):
        origin = origin_of(ctx)
        # The schema has checked its form; what is left is what a pattern cannot say.
        if not urlsplit(origin).hostname:
            raise invalid("/config/origin", f"/config/origin: {origin} is not an address")
        why = "rent, look at and return proxies"
        need = model.EgressNeed(origin, ["GET", "POST", "DELETE"], PATH, "none", why, [])
        return model.ConfigReport(origin, [need], [], [])

    @guarded
    def validate_create(self, ctx, request):
        return model.CreatePlan(request.name, None, [], [])


class Lifecycle(exports.Lifecycle):
    @guarded
    def create(self, ctx, request):
        body = {"name": request.name, "port": request.port, "tags": {tag.key: tag.value for tag in request.tags}}
        answer = send(ctx, "renting the proxy", "POST", body=body)
        if answer.status == 201:
            return instance(answer.body)
        if answer.code == "limit":
            raise failure(model.Reason_Quota(), "the account has no more proxies", code=answer.code)
        if answer.code != "exists":
            raise from_status("renting the proxy", answer)
        found = find(ctx, request.name)
        if found is None:
            raise failure(model.Reason_Busy(), "a proxy of this name has just gone")
        if not is_owned(found, request.owner):
            raise failure(model.Reason_NameTaken(), f"proxy {request.name} is somebody else's")
        if found["state"] == "ending":
            raise failure(model.Reason_Busy(), f"proxy {request.name} is being returned")
        return instance(found)

    @guarded
    def get(self, ctx, target):
        found = find(ctx, target.id)
        if is_meant(found, target):
            return model.Observation_Found(instance(found))
        return model.Observation_Absent(None)

    @guarded
    def delete(self, ctx, target):
        found = find(ctx, target.id)
        if not is_meant(found, target) or not is_owned(found, target.owner):
            return model.Deletion_Gone()
        if found["state"] == "ending":
            return model.Deletion_InProgress(1000)
        path = f"/{quote(target.id, safe='')}?{urlencode({'serial': found['serial']})}"
        answer = send(ctx, "returning the proxy", "DELETE", path)
        if answer.status == 202:
            return model.Deletion_InProgress(1000)
        if answer.code in ("unknown-proxy", "other-serial"):
            return model.Deletion_Gone()
        raise from_status("returning the proxy", answer)

    @guarded
    def list_by_tag(self, ctx, request):
        if request.untagged_prefix is not None:
            raise failure(model.Reason_Unsupported(), "the rental API cannot list by prefix")
        query = [("tag", f"{tag.key}:{tag.value}") for tag in request.owner]
        query.append(("limit", min(request.limit, 100)))
        if request.cursor is not None:
            query.append(("after", request.cursor))
        answer = send(ctx, "listing proxies", "GET", f"?{urlencode(query)}")
        if answer.status != 200:
            raise from_status("listing proxies", answer)
        # No list is not an empty list.
        if not isinstance(answer.body, dict) or not isinstance(answer.body.get("items"), list):
            raise failure(model.Reason_Transient(), "listing proxies: the answer is no list")
        items = [instance(proxy) for proxy in answer.body["items"] if is_owned(proxy, request.owner)]
        return model.Page(items, answer.body.get("next"), [], [])
