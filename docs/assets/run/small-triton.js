/** The small Triton as files of a Python, and the library's parts that it runs, as the build has written them. */
export async function smallTriton() {
  const { files, library } = await (await fetch(new URL("runtime.json", import.meta.url))).json();
  return { files: Object.fromEntries(Object.entries(files).map(([name, text]) => [`small_triton/${name}`, text])), library };
}
