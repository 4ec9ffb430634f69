/** What the game's backend hands to a browser that may play. */
export interface Session {
  project_id: string
  token: string
  ws_url: string
}

/** Who this is, and the backend's proof of it. */
interface Player {
  player_id: string
  ticket: string
}

const PLAYER = 'roomful.player'
const NAME = 'roomful.name'

/** The name chosen on the front page, or undefined. Shared by all tabs of this browser. */
export const chosenName = (): string | undefined => localStorage.getItem(NAME) || undefined

/** Remembers the name; an empty one is none. */
export const chooseName = (name: string): void => localStorage.setItem(NAME, name)

/** Asks the game's backend to let one player in, again and again as tokens expire. */
export class Login {
  readonly #game: string
  readonly #name: string | undefined
  readonly #storage: Storage | undefined
  #player: Player | undefined

  /**
   * `name`: what the others see, if anything. `storage` keeps who this player is: the tab's sessionStorage, or nothing for one
   * who does not come back.
   */
  constructor(game: string, { name, storage }: { name?: string | undefined; storage?: Storage }) {
    this.#game = game
    this.#name = name
    this.#storage = storage
    const stored = storage?.getItem(PLAYER)
    if (stored) this.#player = JSON.parse(stored) as Player
  }

  /** A fresh token. Rejects with an Error whose message can be shown. */
  async session(): Promise<Session> {
    const response = await fetch('/api/session', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        game: this.#game,
        ...(this.#name && { name: this.#name }),
        ...(this.#player && { player: this.#player }),
      }),
    }).catch(() => {
      throw new Error('the server of the game does not answer')
    })
    const answer = (await response.json()) as Session & { player: Player; detail?: string }
    if (!response.ok) throw new Error(answer.detail ?? `the server of the game answered ${response.status}`)
    this.#player = answer.player
    this.#storage?.setItem(PLAYER, JSON.stringify(answer.player))
    return answer
  }
}
