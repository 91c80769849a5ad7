/** The small Triton as files of a Python, and the library's parts that it runs, as the build has written them. */
export async function tinyTriton() {
  const { files, library } = await (await fetch(new URL("runtime.json", import.meta.url))).json();
  return { files: Object.fromEntries(Object.entries(files).map(([name, text]) => [`tiny_triton/${name}`, text])), library };
}
