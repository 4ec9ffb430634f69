import type { RoomDescription, SessionDescription } from '../../dataplane/descriptions.ts'

/** What control answered; ids and tokens are texts. */
type Told = Record<string, string>

/** Calls a control API, with additional `headers`. Rejects with the answer if that is not a success. */
export async function callControl(
  url: string,
  method: 'GET' | 'POST' | 'PUT',
  path: string,
  body?: object,
  headers: Readonly<Record<string, string>> = {},
  send: typeof fetch = fetch,
): Promise<Told> {
  const response = await send(`${url}${path}`, {
    method,
    headers: { ...(method === 'POST' && { 'content-type': 'application/json' }), ...headers },
    ...(body && { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(60_000),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`)
  return JSON.parse(text)
}

/** A project of its own with a token for its players. */
export async function loginAt(
  url: string,
  claims: object = {},
  headers: Readonly<Record<string, string>> = {},
): Promise<{ projectId: string; token: string }> {
  const post = (path: string, body: object) => callControl(url, 'POST', path, body, headers)
  const { id: projectId = '' } = await post('/projects', { name: 'test' })
  const { token = '' } = await post('/tokens', { project_id: projectId, ...claims })
  return { projectId, token }
}

/** The rooms, with their states, and sessions of a node. Rejects when it does not answer within `withinMs`. */
export async function runtimeOf(adminUrl: string, internalToken: string, withinMs = 60_000) {
  const response = await fetch(`${adminUrl}/admin/runtime?include_state=1`, {
    headers: { 'x-service-internal-token': internalToken },
    signal: AbortSignal.timeout(withinMs),
  })
  return (await response.json()) as { rooms: RoomDescription[]; sessions: SessionDescription[] }
}

/** The sum of a metric over all series of a node that have the labels of `series`, such as `name{label="x"}`; 0: none yet. */
export async function metricOf(adminUrl: string, series: string): Promise<number> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text()
  const [name, labels = ''] = series.replace(/}$/, '').split('{')
  return text
    .split('\n')
    .filter((line) => /^\w+/.exec(line)?.[0] === name)
    .filter((line) => labels.split(',').every((label) => line.includes(label)))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)
}
