import { Refused } from './api.ts'

/** The owner of a room answers within 10 s, and control within 12 s. Deleting takes longer, but has no button. */
const TIMEOUT_MS = 20_000
const NO_TOKEN = 'Control needs an operator token: one of its CONTROL_API_TOKENS.'
const WRONG_TOKEN =
  'Control does not accept this token. It must be one of CONTROL_API_TOKENS of control; leave it empty if control has none.'
const isLoopback = ({ hostname }: URL): boolean => hostname === 'localhost' || hostname === '127.0.0.1'

/** Calls of the control API. The operator token is in memory only: a reload forgets it. */
export class Control {
  /** The address that the node knows. */
  readonly #home = document.getElementById('page')!.dataset.control ?? ''
  #url = this.#home
  #token = ''
  #isAccepted = false

  /** Address of the control API. */
  get url(): string {
    return this.#url
  }

  /** True: control has accepted the token that the page has. */
  get isOpen(): boolean {
    return this.#isAccepted
  }

  /** Uses this token and address for the next calls. Throws a `Refused` for an address to which the page cannot connect. */
  open(token: string, address: string): void {
    const url = URL.canParse(address) ? new URL(address) : undefined
    if (!url || (url.origin !== new URL(this.#home).origin && !(url.protocol === 'http:' && isLoopback(url))))
      throw new Refused(
        0,
        `This page can connect to control at ${new URL(this.#home).origin}, or through a tunnel at http://localhost:… or http://127.0.0.1:…, not at ${address}.`,
      )
    this.#url = address.replace(/\/$/, '')
    this.#token = token
  }

  forget(): void {
    this.#token = ''
    this.#isAccepted = false
  }

  /** Resolves with the answer. Rejects with a `Refused` whose message says what was wrong. `path`: parts between slashes. */
  async ask<T = unknown>(
    method: string,
    path: readonly string[],
    { query, body }: { readonly query?: Record<string, string>; readonly body?: object } = {},
  ): Promise<T> {
    const search = query ? `?${new URLSearchParams(query)}` : ''
    const url = `${this.#url}/${path.map(encodeURIComponent).join('/')}${search}`
    const response = await fetch(url, {
      method,
      headers: {
        ...(this.#token !== '' && { authorization: `Bearer ${this.#token}` }),
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }).catch((error: unknown) => {
      throw new Refused(0, (error as Error).name === 'TimeoutError' ? this.#late : this.#unreachable)
    })
    if (response.status === 401) {
      const hadToken = this.#token !== ''
      this.forget()
      throw new Refused(401, hadToken ? WRONG_TOKEN : NO_TOKEN)
    }
    const answer = await response.json().catch(() => ({}))
    if (!response.ok) throw new Refused(response.status, wordsOf(answer, response.status))
    this.#isAccepted = true
    return answer
  }

  get #late(): string {
    return `Control has not answered within ${TIMEOUT_MS / 1000} s. What you asked for may still happen.`
  }

  get #unreachable(): string {
    return `No answer from control at ${this.#url}. Either this browser cannot reach that address, or control does not allow this page: it allows the pages of nodes at their ADMIN_URL, and pages at localhost (without operator tokens only at the port of an ADMIN_URL). This page is at ${location.origin}. The command roomful admin does the same without a browser.`
  }
}

/** A problem of control as a sentence. */
function wordsOf(
  problem: {
    readonly detail?: string
    readonly errors?: readonly { readonly path: string; readonly message: string }[]
  },
  status: number,
): string {
  const fields = (problem.errors ?? []).map(({ path, message }) => `${path} ${message}`)
  return [problem.detail ?? `Control answered ${status}.`, ...fields].join(' ')
}
