/* Python in a worker: MicroPython, the small Triton and the library's kernels.
 *
 * It loads nothing but files beside this one. A message {id, request} is answered by {id, reply};
 * requests and replies are those of src/softmax_site/tiny_triton/session.py.
 */
import { loadMicroPython } from "./micropython/micropython.mjs";

const HEAP = 32 * 1024 * 1024;

async function start() {
  const runtime = fetch(new URL("runtime.json", import.meta.url)).then((found) => found.json());
  const python = await loadMicroPython({ heapsize: HEAP });
  const { files, library } = await runtime;
  for (const path of ["/lib", "/lib/tiny_triton"]) {
    try {
      python.FS.mkdir(path);
    } catch {
      /* It is there already. */
    }
  }
  for (const [name, text] of Object.entries(files)) python.FS.writeFile(`/lib/tiny_triton/${name}`, text);
  python.runPython("from tiny_triton import session");
  const session = python.globals.get("session");
  session.provide(JSON.stringify(library));
  return session;
}

const session = start();

self.onmessage = async ({ data: { id, request } }) => {
  try {
    const reply = JSON.parse((await session).answer(JSON.stringify(request)));
    self.postMessage({ id, reply });
  } catch (problem) {
    /* What Python could not catch itself: its memory or its stack is used up. */
    self.postMessage({ id, failure: String(problem.message ?? problem).trim().split("\n").at(-1) });
  }
};
