/** Response of the game's backend to a login. */
export interface Session {
  project_id: string
  token: string
  ws_url: string
}

/** Player id, and the backend's proof of it. */
interface Player {
  player_id: string
  ticket: string
}

const PLAYER = 'roomful.player'
const NAME = 'roomful.name'

/** Name from the front page, or undefined. Shared by all tabs of this browser. */
export const chosenName = (): string | undefined => localStorage.getItem(NAME) || undefined

/** Stores the name. An empty name removes it. */
export const chooseName = (name: string): void => localStorage.setItem(NAME, name)

/** Logs one player in at the game's backend, and again for each new token. */
export class Login {
  readonly #game: string
  readonly #name: string | undefined
  readonly #storage: Storage | undefined
  #player: Player | undefined

  /**
   * `name`: name that other players see, if any. `storage`: where the player's id is kept, such as the tab's sessionStorage.
   * Without `storage`, each login creates a new player.
   */
  constructor(game: string, { name, storage }: { name?: string | undefined; storage?: Storage }) {
    this.#game = game
    this.#name = name
    this.#storage = storage
    const stored = storage?.getItem(PLAYER)
    if (stored) this.#player = JSON.parse(stored) as Player
  }

  /** Fetches a new token. Rejects with an Error to show to the player. */
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
      throw new Error('the game server does not answer')
    })
    const answer = (await response.json()) as Session & { player: Player; detail?: string }
    if (!response.ok) throw new Error(answer.detail ?? `the game server answered ${response.status}`)
    this.#player = answer.player
    this.#storage?.setItem(PLAYER, JSON.stringify(answer.player))
    return answer
  }
}
