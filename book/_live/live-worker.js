// Python in a worker: Pyodide, the library, and one door (scaling_lib.live.call). It computes nothing itself.
const library = new URL(new URL(import.meta.url).searchParams.get("library"), import.meta.url);
const runtime = new URL("./pyodide/", import.meta.url);

async function start() {
  const zip = fetch(library).then(answer => {
    if (!answer.ok) throw new Error(`${library.pathname}: ${answer.status}`);
    return answer.arrayBuffer();
  });
  const { loadPyodide } = await import(new URL("pyodide.mjs", runtime));
  const python = await loadPyodide({ indexURL: runtime.href, env: { HOME: "/home/pyodide", MPLBACKEND: "agg" } });
  python.unpackArchive(await zip, "zip", { extractDir: "/course" });
  python.runPython("import sys; sys.path.insert(0, '/course')");
  return { python, call: python.pyimport("scaling_lib.live").call };
}

// The runtime waits for ever when its binary does not arrive, so what goes wrong while it starts is told from here too.
let up = false;
const fail = error => { if (!up) postMessage({ failed: String(error) }); };
addEventListener("unhandledrejection", event => fail(event.reason));
const load = self.fetch;
self.fetch = async (...request) => {
  const answer = await load.apply(self, request);
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
