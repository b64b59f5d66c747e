// Requests to the page's server.

const DASHBOARD = { name: "dashboard", command: "penstock serve dashboard" };

export async function request(path, options = {}, server = DASHBOARD) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin" });
  } catch {
    throw new Error(`The ${server.name} does not answer. Check that \`${server.command}\` still runs.`);
  }
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const text = await response.text();
  const content = isJson ? parse(text) : { message: text };
  if (!response.ok) throw new Error(content.message || `The ${server.name} answered ${response.status}.`);
  return content;
}

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LONG = /^-?\d{16,}$/;

// Parses JSON. Whole numbers that a browser would round, such as ids of 64 bits, become texts.
export const parse = (json) => JSON.parse(json.replace(TOKEN, (token) => (LONG.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token)));

export const pathOf = (processor, resource) => `api/processors/${encodeURIComponent(processor)}/${resource}`;
