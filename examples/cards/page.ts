import { Confetti } from '../ui/confetti.ts'
import { byId, create } from '../ui/dom.ts'
import { hueOf, nameOf } from '../ui/identity.ts'
import { type Stage, startGame } from '../ui/stage.ts'
import { HandView, SUIT_NAMES, showFace, suitMark } from './card-view.ts'
import type room from './room.ts'
import { type Card, fits, inOrder, isEight, SUITS, type Suit, TURN_MS } from './rules.ts'

type State = Stage<typeof room>['room']['state']

/** As many backs of cards as say that someone holds more than a few. */
const MOST_BACKS = 7

/** The table, as a player or a spectator sees it: what is in the state, and what may be done about it. */
class Game {
  readonly #stage: Stage<typeof room>
  readonly #hand: HandView
  readonly #confetti = new Confetti(document.body)
  readonly #deal = byId('deal', HTMLButtonElement)
  readonly #pass = byId('pass', HTMLButtonElement)
  readonly #deck = byId('deck', HTMLButtonElement)
  readonly #suits = byId('suits', HTMLDialogElement)
  #eight: Card | undefined
  #top: Card | undefined

  constructor(stage: Stage<typeof room>) {
    this.#stage = stage
    const { room } = stage
    this.#hand = new HandView(byId('hand', HTMLElement), (card) => this.#choose(card))
    this.#deal.addEventListener('click', () => this.#try(room.send('deal')))
    this.#pass.addEventListener('click', () => this.#try(room.send('pass')))
    this.#deck.addEventListener('click', () => this.#try(room.request('draw')))
    document.addEventListener('keydown', (event) => {
      if (this.#suits.open || event.ctrlKey || event.metaKey || event.altKey) return
      if (event.key === 'd' && !this.#deck.disabled) this.#deck.click()
      if (event.key === 'p' && !this.#pass.hidden) this.#pass.click()
    })
    byId('suit-buttons', HTMLElement).append(...SUITS.map((suit) => this.#suitButton(suit)))
    room.on('timedOut', ({ player }) => stage.toasts.show(`${this.#name(player)} took too long`))
    room.on('over', ({ winner }) => {
      if (winner === room.memberId) this.#confetti.burst(innerWidth / 2, innerHeight * 0.6)
    })
    room.onStateChange(() => this.#show())
    room.onMembersChange(() => this.#show())
    this.#show()
  }

  /** A card of the hand was clicked: an eight asks for a suit first. */
  #choose(card: Card): void {
    if (this.#myTurn(this.#stage.room.state) && isEight(card)) {
      this.#eight = card
      this.#suits.showModal()
    } else this.#play(card)
  }

  #play(card: Card, suit?: Suit): void {
    const played = this.#stage.room.send('play', { card, ...(suit && { suit }) })
    this.#try(
      played.catch((error: unknown) => {
        this.#hand.refuse(card)
        throw error
      }),
    )
  }

  #try(asked: Promise<unknown>): void {
    asked.catch((error: unknown) => this.#stage.toasts.refuse(error))
  }

  #suitButton(suit: Suit): HTMLButtonElement {
    const button = create('button', { type: 'button', 'aria-label': SUIT_NAMES[suit] }, suitMark(suit))
    button.addEventListener('click', () => {
      this.#suits.close()
      if (this.#eight) this.#play(this.#eight, suit)
    })
    return button
  }

  #name(id: string): string {
    if (id === this.#stage.room.memberId) return 'You'
    return nameOf(id, this.#stage.room.state.players[id]?.sub)
  }

  #myTurn({ phase, turn }: State): boolean {
    return phase === 'playing' && turn.of === this.#stage.room.memberId
  }

  #show(): void {
    const { room } = this.#stage
    const { state } = room
    const { order, pile, phase } = state
    const me = room.memberId
    const playing = state.players[me] !== undefined
    const mine = this.#myTurn(state)
    const at = order.indexOf(me)
    // Those who play after me come first, as they sit around a table.
    const others = [...order.slice(at + 1), ...order.slice(0, Math.max(0, at))]
    byId('others', HTMLElement).replaceChildren(...others.map((id) => this.#seat(id, state)))
    byId('own', HTMLElement).hidden = !playing
    byId('seat', HTMLElement).replaceChildren(...(playing ? [this.#seat(me, state)] : []))
    const top = pile.at(-1)
    this.#showPile(top, state)
    const hand = phase === 'waiting' ? [] : inOrder(state.hands[me] ?? [])
    this.#hand.show(hand, (card) => mine && top !== undefined && fits(card, top, state.suit))
    byId('hand', HTMLElement).classList.toggle('mine', mine)
    byId('verdict', HTMLElement).textContent = this.#verdict(state, mine)
    this.#deck.disabled = !mine || state.turn.drew
    this.#pass.hidden = !mine
    this.#pass.classList.toggle('primary', state.turn.drew)
    this.#deal.hidden = !playing || phase === 'playing'
    this.#deal.disabled = order.length < 2
    this.#deal.textContent = phase === 'over' ? 'Play again' : 'Deal'
    if (!mine && this.#suits.open) this.#suits.close()
    const watching = room.members.filter(({ id }) => !state.players[id]).length
    byId('watching', HTMLElement).textContent = watching > 0 ? `${watching} watching` : ''
  }

  #showPile(top: Card | undefined, { suit, phase }: State): void {
    const asked = byId('asked', HTMLElement)
    asked.hidden = !top || !isEight(top) || phase !== 'playing'
    asked.replaceChildren(suitMark(suit), create('span', { text: 'asked for' }))
    if (top === this.#top) return
    this.#top = top
    const card = create('div', { class: 'playing-card', role: 'img' })
    if (top) showFace(card, top)
    byId('pile', HTMLElement).replaceChildren(...(top ? [card] : []))
  }

  /** One player: the name, how many cards, and how it does. */
  #seat(id: string, { players, turn, phase, winner }: State): HTMLElement {
    const { room, serverTime } = this.#stage
    const { cards = 0, bot = false, wins = 0 } = players[id] ?? {}
    const connected = room.members.find((member) => member.id === id)?.connected ?? false
    const own = id === room.memberId
    const active = phase === 'playing' && turn.of === id
    const seat = create('div', { class: 'player' })
    seat.style.setProperty('--hue', String(hueOf(id)))
    seat.classList.toggle('turn', active || winner === id)
    seat.classList.toggle('away', bot || !connected)
    const notes = [
      ...(phase === 'waiting' ? [] : [`${cards} ${cards === 1 ? 'card' : 'cards'}`]),
      ...(wins > 0 ? [`${wins} won`] : []),
    ]
    const name = create('strong', { class: 'who', text: this.#name(id) })
    seat.append(name, create('span', { class: 'note quiet', text: notes.join(' · ') }))
    // In the place of the cards: so the table stays where it is when someone goes and comes.
    if (bot || !connected)
      seat.append(create('span', { class: 'status quiet', text: bot ? 'a bot plays' : 'offline' }))
    else if (!own) {
      const backs = Array.from({ length: Math.min(cards, MOST_BACKS) }, () => create('i'))
      seat.append(create('span', { class: 'backs', 'aria-hidden': 'true' }, ...backs))
    }
    if (active) {
      const time = create('span', { class: 'time', 'aria-hidden': 'true' })
      time.style.animationDuration = `${TURN_MS}ms`
      time.style.animationDelay = `${Math.min(0, turn.endsAt - serverTime() - TURN_MS)}ms`
      seat.append(time)
    }
    return seat
  }

  #verdict(state: State, mine: boolean): string {
    const { phase, order, winner, turn, suit, pile } = state
    if (phase === 'over' && winner)
      return winner === this.#stage.room.memberId ? 'You have won!' : `${this.#name(winner)} has won.`
    if (phase !== 'playing')
      return order.length < 2 ? 'Waiting for a second player …' : `${order.length} at the table. Deal!`
    if (!mine)
      return state.players[turn.of]?.bot
        ? `A bot plays for ${this.#name(turn.of)} …`
        : `${this.#name(turn.of)} is thinking …`
    const top = pile.at(-1)
    const rank = top && !isEight(top) ? ` a ${top.slice(0, -1)}` : ''
    if (turn.drew) return `Play ${suit}\uFE0E,${rank && `${rank},`} an 8, or pass.`
    return `Your turn: ${suit}\uFE0E,${rank && `${rank},`} an 8, or draw.`
  }
}

void startGame<typeof room>('cards', (stage) => {
  new Game(stage)
})
