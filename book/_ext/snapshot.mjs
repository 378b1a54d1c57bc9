// Starts Pyodide once, while the book is built, and writes the memory of the Python that has the library loaded.
// node snapshot.mjs RUNTIME LIBRARY.zip MODULE... > SNAPSHOT
import { readFileSync, writeSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [runtime, library, ...modules] = process.argv.slice(2);
const folder = resolve(runtime) + "/";
const { loadPyodide } = await import(pathToFileURL(folder + "pyodide.mjs"));
const env = { HOME: "/home/pyodide", MPLBACKEND: "agg", PYTHONHASHSEED: "0" };
const python = await loadPyodide({ indexURL: folder, env, stdout: line => console.error(line), _makeSnapshot: true });
const zip = readFileSync(library);
python.unpackArchive(zip.buffer.slice(zip.byteOffset, zip.byteOffset + zip.length), "zip", { extractDir: "/course" });
python.runPython("import sys; sys.path.insert(0, '/course')");
for (const module of modules) python.pyimport(module).destroy();
const memory = python.makeMemorySnapshot();
for (let at = 0; at < memory.length;) at += writeSync(1, memory, at);
