// Python in a worker: Pyodide, the library, and one door (scaling_lib.live.call). It computes nothing itself.
const given = name => new URL(new URL(import.meta.url).searchParams.get(name), import.meta.url);
const runtime = new URL("./pyodide/", import.meta.url);

const load = name => fetch(given(name));

// The memory of a Python that has the library loaded already (book/_ext/snapshot.py). A browser that cannot unpack it
// starts Python from nothing, which takes three times as long.
function snapshot() {
  if (!self.DecompressionStream) return {};
  const unpacked = load("snapshot").then(answer => answer.body.pipeThrough(new DecompressionStream("gzip")));
  return { _loadSnapshot: unpacked.then(stream => new Response(stream).arrayBuffer()) };
}

async function start() {
  const zip = load("library").then(answer => answer.arrayBuffer()), memory = snapshot();
  const { loadPyodide } = await import(new URL("pyodide.mjs", runtime));
  const env = { HOME: "/home/pyodide", MPLBACKEND: "agg" };
  const python = await loadPyodide({ indexURL: runtime.href, env, ...memory });
  python.unpackArchive(await zip, "zip", { extractDir: "/course" });
  python.runPython("import sys; '/course' in sys.path or sys.path.insert(0, '/course')");
  return { python, call: python.pyimport("scaling_lib.live").call };
}

// The runtime waits for ever when its binary does not arrive, so what goes wrong while it starts is told from here too.
let up = false;
const fail = error => { if (!up) postMessage({ failed: String(error) }); };
addEventListener("unhandledrejection", event => fail(event.reason));
const request = self.fetch;
self.fetch = async (...what) => {
  const answer = await request.apply(self, what);
  if (!answer.ok) fail(`${new URL(answer.url).pathname.split("/").pop()}: ${answer.status}`);
  return answer;
};

const ready = start();
ready.then(() => { up = true; postMessage({ started: true }); }, fail);

async function answer(name, args) {
  const { python, call } = await ready;
  let reply = JSON.parse(call(name, JSON.stringify(args)));
  for (let round = 0; reply.value?.needs?.length && round < 3; round++) {
    await python.loadPackage(reply.value.needs, { messageCallback: () => {} });
    reply = JSON.parse(call(name, JSON.stringify(args)));
  }
  return reply;
}

onmessage = async ({ data: { id, name, args } }) => {
  try {
    postMessage({ id, ...(await answer(name, args)) });
  } catch (error) {
    postMessage({ id, error: String(error) });
  }
};
