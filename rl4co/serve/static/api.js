// Requests to the service; errors carry the words of the service.

/** An error of the service, with the field that it is about, if any. */
export class ServiceError extends Error {
  constructor(message, field = null) {
    super(message);
    this.field = field;
  }
}

// The token of services that require one comes with the address, from which it is removed; the
// browser keeps it until the tab is closed.
const KEY = "rl4co-token";
const stated = new URLSearchParams(location.search).get("token");
if (stated) {
  history.replaceState(null, "", location.pathname);
  sessionStorage.setItem(KEY, stated);
}
const token = stated || sessionStorage.getItem(KEY);

async function send(method, path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ServiceError("The service does not answer; is `rl4co serve` still running?");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const { message, field } = answer.error || {};
  throw new ServiceError(message || `The service answered ${response.status} ${response.statusText}`, field);
}

export const get = async (path) => (await send("GET", path)).json();
export const post = async (path, body) => (await send("POST", path, body)).json();
export const cancel = (id) => send("DELETE", `api/jobs/${id}`);

/** Lets the user save an answer of the service as a file. */
export const download = async (path, name) => saveFile(await (await send("GET", path)).blob(), name);

/** Lets the user save a blob as a file. */
export function saveFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Follows a job: `handlers` are called by the name of the event. Returns a function that stops. */
export function follow(id, handlers) {
  const source = new EventSource(`api/jobs/${id}/events${token ? `?token=${encodeURIComponent(token)}` : ""}`);
  const close = () => source.close();
  const handle = (name) => (event) => {
    if (!event.data) return; // the connection broke; the browser opens it again
    if (name === "done") close();
    handlers[name](JSON.parse(event.data));
  };
  for (const name of ["state", "incumbent", "solution", "decision", "done", "error"]) source.addEventListener(name, handle(name));
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) handlers.lost();
  };
  return close;
}
