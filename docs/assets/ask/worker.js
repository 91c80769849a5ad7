/* Python in a worker: files are put into its memory, a few lines define `ask`, and every message is a
 * question for it. Both are text; what `ask` raises comes back as an error.
 */
let ask = null;

async function load({ micropython, files, start, names }) {
  const { loadMicroPython } = await import(micropython);
  const python = await loadMicroPython({ heapsize: 32 * 1024 * 1024 });
  for (const [path, text] of Object.entries(files)) {
    const parts = path.split("/").slice(0, -1);
    parts.forEach((_, at) => {
      const folder = `/${parts.slice(0, at + 1).join("/")}`;
      if (!python.FS.analyzePath(folder).exists) python.FS.mkdir(folder);
    });
    python.FS.writeFile(`/${path}`, text);
  }
  for (const [name, text] of Object.entries(names)) python.globals.set(name, text);
  python.runPython("import sys; sys.path.append('/')");
  python.runPython(start);
  ask = python.globals.get("ask");
}

onmessage = async ({ data }) => {
  try {
    if (data.load) {
      await load(data.load);
      postMessage({ id: data.id, answer: "" });
    } else {
      postMessage({ id: data.id, answer: ask(data.question) });
    }
  } catch (error) {
    postMessage({ id: data.id, error: String(error.message || error) });
  }
};
