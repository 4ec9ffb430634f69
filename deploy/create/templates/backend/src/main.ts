import { connect, type Room } from 'roomful/client'
import { withQueues } from 'roomful/client/queue'
import type quick from '../rooms/quiz/queue.ts'
import type quiz from '../rooms/quiz/room.ts'

const find = <T extends HTMLElement>(id: string) => document.querySelector<T>(`#${id}`)!
const tell = (text: string) => {
  find('status').textContent = text
}
/** Shows an error. The player knows of a ticket that they have cancelled. */
const fail = (error: Error & { code?: string }) =>
  tell(error.code === 'cancelled' ? '' : error.message)
const button = (textContent: string, onclick: () => void) =>
  Object.assign(document.createElement('button'), { textContent, onclick })
const item = (...content: (string | Node)[]) => {
  const made = document.createElement('li')
  made.append(...content)
  return made
}

async function api(method: string, path: string): Promise<Response> {
  const response = await fetch(`/api/${path}`, { method })
  if (!response.ok) throw new Error(`the backend answers with ${response.status}`)
  return response
}

const showCoins = async () => {
  find('coins').textContent = `Coins: ${(await (await api('GET', 'coins')).json()).coins}`
}

/** In production, the server has the address of the page. */
const url = import.meta.env.VITE_ROOMFUL_URL ?? location.origin.replace('http', 'ws')
const connected = await connect<[typeof quiz, typeof quick]>(url, {
  getToken: async () => (await api('POST', 'token')).text(),
  resume: 'tab',
}).catch((error: Error) => {
  fail(error)
  throw error
})
const client = withQueues(connected)
client.onConnectionChange((status) => tell(status === 'online' ? '' : status))
showCoins().catch(fail)

/** Shows the list of open games, until `join` has a room. */
function lobby(): void {
  find('quiz').hidden = true
  find('lobby').hidden = false
  history.replaceState(null, '', './')
  tell('')
  const stop = client.watchRooms('quiz', {}, (games) =>
    find('games').replaceChildren(
      ...games.map(({ key, players, data }) => {
        const enter = () => join(client.join('quiz', { key }, { create: false }))
        return item(`${data.host} (${players} of 8)`, button('Join', enter))
      }),
    ),
  )
  const join = (joining: Promise<Room<typeof quiz>>) =>
    joining.then((room) => {
      stop()
      play(room)
    }, fail)

  find('open').onclick = () => join(client.create('quiz'))
  find('friends').onclick = () => join(client.create('quiz', { mode: 'friends' }))
  find('by-code').onsubmit = (event) => {
    event.preventDefault()
    join(client.joinByCode<typeof quiz>(find<HTMLInputElement>('code').value))
  }
  const now = find('quick')
  const ready = () => {
    now.textContent = 'Play now'
    now.onclick = wait
  }
  const wait = () => {
    const ticket = client.queue('quick', {})
    ticket.onChange(({ waiting }) => tell(`looking for a player … ${waiting} waiting`))
    now.textContent = 'Cancel'
    now.onclick = () => void ticket.cancel()
    join(ticket.matched).then(ready)
  }
  ready()
}

function play(room: Room<typeof quiz>): void {
  find('lobby').hidden = true
  find('quiz').hidden = false
  // A reload continues the game, and friends can open the link.
  history.replaceState(null, '', `?code=${room.code}`)
  tell('')
  const show = () => {
    const { phase, round, question, right, players, chosen, choices } = room.state
    const share = `Code for friends: ${room.code}`
    find('top').textContent = phase === 'lobby' ? share : `Question ${round} of 5`
    const text = phase === 'over' ? 'Well played!' : question?.text
    find('question').textContent = text ?? ''
    find('choices').replaceChildren(
      ...(question?.choices ?? []).map((text, index) => {
        const mine = choices[room.memberId] === index
        const note = [right === index && '✓ right', mine && 'your answer'].filter(Boolean)
        const label = [text, ...note].join(' · ')
        const choice = button(label, () => room.send('choose', index).catch(fail))
        choice.disabled = phase !== 'question' || Boolean(chosen[room.memberId])
        choice.className = `${mine ? 'mine ' : ''}${right === index ? 'right' : ''}`
        return choice
      }),
    )
    find('players').replaceChildren(
      ...Object.entries(players).map(([id, { name, points }]) => {
        const done = phase === 'question' && chosen[id] ? ' ✓' : ''
        return item(`${name}${id === room.memberId ? ' (you)' : ''}: ${points}${done}`)
      }),
    )
    find('start').hidden = phase !== 'lobby'
    find('time').hidden = phase !== 'question'
  }
  show()
  room.onStateChange(show)
  const timer = setInterval(() => {
    const { question, phase } = room.state
    const leftMs = (question?.endsAt ?? 0) - client.serverTime()
    find<HTMLProgressElement>('time').value = Math.max(0, leftMs / 1000)
    // The room reports the points to the backend, which may be away for a moment.
    if (phase === 'over') showCoins().then(() => tell(''), fail)
  }, 500)
  find('start').onclick = () => room.send('start').catch(fail)
  find('leave').onclick = () => room.leave()
  room.onLeave((_reason, error) => {
    clearInterval(timer)
    lobby()
    if (error) fail(error)
  })
}

const code = new URL(location.href).searchParams.get('code')
if (code === null) lobby()
else
  client.joinByCode<typeof quiz>(code).then(play, (error: Error) => {
    lobby()
    fail(error)
  })
