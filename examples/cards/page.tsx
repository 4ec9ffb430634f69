/** @jsxImportSource react */
import { type CSSProperties, type KeyboardEvent, useEffect, useLayoutEffect, useRef, useState } from 'react'
import { createRoot } from 'react-dom/client'
import { withQueues } from 'roomful/client/queue'
import { useEvent, useMembers, useRoomState, useSpectators } from 'roomful/react'
import { Confetti } from '../ui/confetti.ts'
import { byId, prefersCalm } from '../ui/dom.ts'
import { coloursOf, nameOf } from '../ui/identity.ts'
import { joinOrWatch, type Stage, startGame } from '../ui/stage.ts'
import type ranked from './queue.ts'
import type cards from './room.ts'
import {
  type Card,
  fits,
  inOrder,
  isEight,
  mayDraw,
  nameOfCard,
  rankOf,
  SUIT_NAMES,
  SUITS,
  type Suit,
  suitOf,
  TURN_MS,
} from './rules.ts'

/** Maximum number of card backs shown for a hand. */
const BACKS = [1, 2, 3, 4, 5, 6, 7]
/** Hands with more cards have two rows, so that each card can be tapped on a narrow screen. */
const ROW = 8
const SHAKE = { translate: ['0', '-6px', '6px', '-3px', '0'] }
const ARROWS: Readonly<Record<string, number>> = { ArrowLeft: -1, ArrowRight: 1 }

const red = (suit: Suit): string => (suit === '♥' || suit === '♦' ? ' red' : '')

/** A suit in its colour. The last character selects text style instead of an emoji. */
const SuitMark = ({ suit, className = 'suit' }: { suit: Suit; className?: string }) => (
  <span className={className + red(suit)}>{`${suit}\uFE0E`}</span>
)

const Face = ({ card }: { card: Card }) => (
  <>
    <span className="corner">
      <b>{rankOf(card)}</b>
      <SuitMark suit={suitOf(card)} />
    </span>
    <SuitMark suit={suitOf(card)} className="middle" />
  </>
)

interface HandProps {
  hand: readonly Card[]
  mine: boolean
  playable: (card: Card) => boolean
  /** Resolves to an error if the room has refused the card. */
  play: (card: Card) => unknown
}

/** The player's hand: buttons in one or two rows, with arrow key navigation. */
function Hand({ hand, mine, playable, play }: HandProps) {
  const place = useRef<HTMLDivElement>(null)
  const chosen = useRef(-1)
  const buttons = () => [...(place.current?.querySelectorAll('button') ?? [])]
  // When the focused card is played, the next card gets the focus.
  useLayoutEffect(() => {
    if (chosen.current < 0 || document.activeElement !== document.body) return
    buttons()[Math.min(chosen.current, hand.length - 1)]?.focus()
    chosen.current = -1
  })
  const walk = (event: KeyboardEvent) => {
    const step = ARROWS[event.key]
    if (step === undefined) return
    event.preventDefault()
    const all = buttons()
    all[(all.findIndex((button) => button.matches(':focus')) + step + all.length) % all.length]?.focus()
  }
  const perRow = hand.length > ROW ? Math.ceil(hand.length / 2) : ROW
  const rows = [hand.slice(0, perRow), hand.slice(perRow)].filter(({ length }) => length > 0)
  return (
    <div
      className={`hand${mine ? ' mine' : ''}`}
      id="hand"
      ref={place}
      role="toolbar"
      aria-label="Your hand"
      onKeyDown={walk}
    >
      {rows.map((row) => (
        <div className="row" key={row[0]} style={{ '--gaps': Math.max(1, row.length - 1) } as CSSProperties}>
          {row.map((card) => (
            <button
              key={card}
              type="button"
              className={`playing-card${red(suitOf(card))}${playable(card) ? ' playable' : ''}`}
              data-card={card}
              aria-label={nameOfCard(card)}
              onClick={async ({ currentTarget }) => {
                chosen.current = hand.indexOf(card)
                if ((await play(card)) && !prefersCalm()) currentTarget.animate(SHAKE, 300)
              }}
            >
              <Face card={card} />
            </button>
          ))}
        </div>
      ))}
    </div>
  )
}

/** Bar that shows the remaining time of a turn. The animation starts at the elapsed time. */
function Clock({ endsAt, now }: { endsAt: number; now: () => number }) {
  const [delayMs] = useState(() => Math.min(0, endsAt - now() - TURN_MS))
  const style = { animationDuration: `${TURN_MS}ms`, animationDelay: `${delayMs}ms` }
  return <span className="time" aria-hidden="true" style={style} />
}

/** Asks for the suit after an eight. */
function SuitDialog({ open, answer }: { open: boolean; answer: (suit?: Suit) => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    if (open) dialog.current?.showModal()
    else dialog.current?.close()
  }, [open])
  return (
    <dialog id="suits" ref={dialog} aria-label="Which suit is to follow?" onClose={() => answer()}>
      <p>Choose the next suit</p>
      <div className="suits">
        {SUITS.map((suit) => (
          <button key={suit} type="button" aria-label={SUIT_NAMES[suit]} onClick={() => answer(suit)}>
            <SuitMark suit={suit} />
          </button>
        ))}
      </div>
    </dialog>
  )
}

/** The table for a player or a spectator, with the possible actions. */
function Table({ stage: { key, room, toasts, serverTime } }: { stage: Stage<typeof cards> }) {
  const state = useRoomState(room)
  const members = useMembers(room)
  const spectators = useSpectators(room)
  const [confetti] = useState(() => new Confetti(document.body))
  const [eight, setEight] = useState<Card>()
  const { order, players, pile, phase, suit, turn, winner } = state
  const me = room.memberId
  const colours = coloursOf(order)
  const nameOfPlayer = (id: string): string => (id === me ? 'You' : nameOf(id, players[id]?.sub))
  useEvent(room, 'timedOut', ({ player }) => toasts.show(`${nameOfPlayer(player)} took too long`))
  useEvent(room, 'over', (end) => {
    if (end.winner !== me) return
    // The backend asks the room who has won. The next token has the number of wins, for the ranked queue.
    const headers = { 'content-type': 'application/json' }
    void fetch('/api/over', { method: 'POST', headers, body: JSON.stringify({ key }) })
    confetti.burst(innerWidth / 2, innerHeight * 0.6)
  })

  const playing = players[me] !== undefined
  const mine = phase === 'playing' && turn.of === me
  const top = pile.at(-1)
  const canDraw = mine && !turn.drew && mayDraw(state)
  const attempt = (asked: Promise<unknown>) =>
    asked.catch((error: unknown) => {
      toasts.refuse(error)
      return error
    })
  const draw = () => attempt(room.request('draw'))
  const pass = () => attempt(room.send('pass'))
  const play = (card: Card, asked?: Suit) =>
    attempt(room.send('play', { card, ...(asked && { suit: asked }) }))
  // A layout effect: when the page shows that a key works, the key must work already.
  useLayoutEffect(() => {
    const press = ({ key, ctrlKey, metaKey, altKey }: globalThis.KeyboardEvent) => {
      if (eight || ctrlKey || metaKey || altKey) return
      if (key === 'd' && canDraw) draw()
      if (key === 'p' && mine && !canDraw) pass()
    }
    document.addEventListener('keydown', press)
    return () => document.removeEventListener('keydown', press)
  })

  /** One player: name, number of cards and status. */
  const seat = (id: string) => {
    const { cards = 0, bot = false, wins = 0 } = players[id] ?? {}
    const away = bot || !members.find((member) => member.id === id)?.connected
    const active = phase === 'playing' && turn.of === id
    const count = phase === 'waiting' ? 'ready' : `${cards} ${cards === 1 ? 'card' : 'cards'}`
    const notes = [count, wins > 0 && `${wins} won`].filter(Boolean).join(' · ')
    const className = `player${active || winner === id ? ' turn' : ''}${away ? ' away' : ''}`
    return (
      <div className={className} key={id} style={{ '--colour': colours.get(id) } as CSSProperties}>
        <strong className="who">{nameOfPlayer(id)}</strong>
        <span className="note quiet">{notes}</span>
        {/* The status replaces the cards, so that the layout does not move when a player disconnects. */}
        {away && <span className="status quiet">{bot ? 'a bot plays' : 'offline'}</span>}
        {!away && id !== me && (
          <span className="backs" aria-hidden="true">
            {BACKS.slice(0, cards).map((back) => (
              <i key={back} />
            ))}
          </span>
        )}
        {active && <Clock key={turn.endsAt} endsAt={turn.endsAt} now={serverTime} />}
      </div>
    )
  }

  const verdict = (): string => {
    if (phase === 'over' && winner)
      return winner === me ? 'You have won!' : `${nameOfPlayer(winner)} has won.`
    const watching = room.spectator ? 'You are watching. ' : ''
    if (phase !== 'playing')
      return order.length < 2
        ? 'Waiting for a second player …'
        : `${watching}${order.length} at the table.${watching ? '' : ' Deal!'}`
    const other = nameOfPlayer(turn.of)
    if (!playing && !watching) return 'You play from the next game on.'
    if (!mine)
      return `${watching}${players[turn.of]?.bot ? `A bot plays for ${other}` : `${other} is thinking`} …`
    const rank = top && !isEight(top) ? ` a ${rankOf(top)},` : ''
    return canDraw
      ? `Your turn: ${suit}\uFE0E,${rank} an 8, or draw.`
      : `Play ${suit}\uFE0E,${rank} an 8, or pass.`
  }

  const at = order.indexOf(me)
  return (
    <>
      <div className="others" id="others">
        {/* In the order of play, from the player after me. */}
        {[...order.slice(at + 1), ...order.slice(0, Math.max(0, at))].map(seat)}
      </div>
      <section className="felt" aria-label="Table">
        <button
          className="playing-card back"
          id="deck"
          type="button"
          aria-label="Draw a card (D)"
          title="Draw a card (D)"
          disabled={!canDraw}
          onClick={draw}
        />
        <div className="pile" id="pile">
          {top && (
            <div
              className={`playing-card${red(suitOf(top))}`}
              key={top}
              role="img"
              aria-label={nameOfCard(top)}
            >
              <Face card={top} />
            </div>
          )}
        </div>
        {top && isEight(top) && phase === 'playing' && (
          <p className="asked" id="asked">
            <SuitMark suit={suit} />
            <span>required</span>
          </p>
        )}
      </section>
      <p className="verdict" id="verdict" role="status">
        {verdict()}
      </p>
      {phase === 'waiting' && (
        <p className="invite" id="invite">
          <span>Code for your friends</span> <strong>{room.code}</strong>
        </p>
      )}
      {playing && (
        <section className="own" id="own" aria-label="You">
          <Hand
            hand={phase === 'waiting' ? [] : inOrder(state.hands[me] ?? [])}
            mine={mine}
            playable={(card) => mine && top !== undefined && fits(card, top, suit)}
            play={(card) => (mine && isEight(card) ? setEight(card) : play(card))}
          />
          <div className="seat" id="seat">
            {seat(me)}
          </div>
        </section>
      )}
      <div className="below">
        {playing && phase !== 'playing' && (
          <button
            className="button primary"
            id="deal"
            type="button"
            disabled={order.length < 2}
            onClick={() => attempt(room.send('deal'))}
          >
            {phase === 'over' ? 'Play again' : 'Deal'}
          </button>
        )}
        {mine && !canDraw && (
          <button className="button primary" id="pass" type="button" title="Pass (P)" onClick={pass}>
            Pass
          </button>
        )}
        <span className="quiet" id="watching">
          {spectators > 0 && `${spectators} watching`}
        </span>
      </div>
      <SuitDialog
        open={mine && eight !== undefined}
        answer={(asked) => {
          if (eight && asked) play(eight, asked)
          setEight(undefined)
        }}
      />
    </>
  )
}

void startGame<typeof cards>(
  'cards',
  (stage) => {
    createRoot(byId('table', HTMLElement)).render(<Table stage={stage} />)
  },
  {
    title: 'Crazy Eights',
    watch: true,
    offer: (lobby, client) => {
      const note = 'Opens a private table, with a code for your friend.'
      lobby.offer('Play with a friend', note, () => client.create<typeof cards>('cards'))
      const rankedNote = 'Finds an opponent with about as many wins as you.'
      const queues = withQueues(client)
      lobby.queue('Ranked game', rankedNote, () =>
        queues.queue<typeof ranked, typeof cards>('cards-ranked', {}),
      )
      lobby.askCode((code) => joinOrWatch((target) => client.joinByCode<typeof cards>(code, {}, target)))
      lobby.link('Open table', 'Sit down with whoever is there.', '?room=lobby-1')
    },
  },
)
