"""The rental API of README.md, in memory: to try the example providers against.

    python3 upstream.py PORT

A proxy is `starting` for two seconds, then `up` at 192.0.2.N; deleted, it is `ending` for two seconds.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PREFIX = "/v1/proxies"
SECONDS = 2
LIMIT = 200

proxies: dict[str, dict] = {}
serials = iter(range(1, sys.maxsize))


def shown(proxy):
    """The proxy as of now, or None once it has ended."""
    now = time.time()
    if proxy["deleted"] is not None:
        return None if now - proxy["deleted"] > SECONDS else {**proxy["said"], "state": "ending"}
    is_up = now - proxy["made"] > SECONDS
    address = f"192.0.2.{int(proxy['said']['serial']) % 254 + 1}" if is_up else None
    return {**proxy["said"], "state": "up" if is_up else "starting", "address": address}


def sweep():
    for name in [name for name, proxy in proxies.items() if shown(proxy) is None]:
        del proxies[name]


class Handler(BaseHTTPRequestHandler):
    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def place(self):
        sweep()
        url = urlsplit(self.path)
        return url.path.removeprefix(PREFIX).strip("/"), parse_qs(url.query)

    def do_GET(self):
        name, query = self.place()
        if name:
            found = proxies.get(name)
            return self.reply(200, shown(found)) if found else self.reply(404, {"error": "unknown-proxy"})
        wanted = [tuple(tag.split(":", 1)) for tag in query.get("tag", [])]
        limit, after = int(query.get("limit", ["100"])[0]), query.get("after", [""])[0]
        fits = [
            name
            for name, proxy in sorted(proxies.items())
            if name > after and all(proxy["said"]["tags"].get(key) == value for key, value in wanted)
        ]
        page = {"items": [shown(proxies[name]) for name in fits[:limit]]}
        if len(fits) > limit:
            page["next"] = fits[limit - 1]
        return self.reply(200, page)

    def do_POST(self):
        self.place()
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["name"] in proxies:
            return self.reply(409, {"error": "exists"})
        if len(proxies) >= LIMIT:
            return self.reply(402, {"error": "limit"})
        made = time.time()
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made))
        said = {"name": asked["name"], "serial": str(next(serials)), "port": asked["port"]}
        said |= {"tags": asked["tags"], "createdAt": created}
        proxies[asked["name"]] = {"said": said, "made": made, "deleted": None}
        return self.reply(201, shown(proxies[asked["name"]]))

    def do_DELETE(self):
        name, query = self.place()
        found = proxies.get(name)
        if not found:
            return self.reply(404, {"error": "unknown-proxy"})
        if query.get("serial", [found["said"]["serial"]])[0] != found["said"]["serial"]:
            return self.reply(409, {"error": "other-serial"})
        found["deleted"] = found["deleted"] or time.time()
        return self.reply(202, shown(found))


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
