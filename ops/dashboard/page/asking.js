// Asking the server for what is not told by itself.

export async function asked(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, credentials: "same-origin" });
  } catch {
    throw new Error("The dashboard does not answer: is it still running?");
  }
  const content = (answer.headers.get("content-type") ?? "").includes("json") ? await answer.json() : { says: await answer.text() };
  if (!answer.ok) throw new Error(content.says || `The dashboard answered ${answer.status}.`);
  return content;
}

export const of = (processor, what) => `api/processors/${encodeURIComponent(processor)}/${what}`;
