import { Writable } from 'node:stream'
import { createElement as h, type ReactNode, Suspense } from 'react'
import { renderToPipeableStream } from 'react-dom/server'
import { expect, it } from 'vitest'
import { RoomfulProvider, useConnection, useQueue, useRoom, useRooms } from './react.ts'

/** Renders a page as a server does. Returns its HTML, and how often it asked for a token and opened a socket. */
async function serverPage(page: ReactNode) {
  const opened = { tokens: 0, sockets: 0 }
  class Socket {
    constructor() {
      opened.sockets += 1
    }
  }
  const getToken = async () => {
    opened.tokens += 1
    return 'token'
  }
  const errors: unknown[] = []
  const options = { getToken, WebSocket: Socket as never }
  const provider = h(RoomfulProvider, { url: 'ws://game.test', options, fallback: 'joining' }, page)
  const html = await new Promise<string>((resolve, reject) => {
    let text = ''
    const sink = new Writable({
      write(chunk, _encoding, done) {
        text += chunk
        done()
      },
      final(done) {
        resolve(text)
        done()
      },
    })
    const onError = (error: unknown) => void errors.push(error)
    renderToPipeableStream(provider, { onShellError: reject, onError }).pipe(sink)
  })
  return { html, errors, opened }
}

const Duel = () => h('b', null, useRoom('duel').id)
const Lobby = () => h('b', null, useRooms('duel').length)
const Waiting = () => h('b', null, useQueue('ranked', {}).waiting)
const Status = () => h('i', null, useConnection().status)

it('A server sends the nearest fallback for a room, a list and a queue, and opens nothing', async () => {
  for (const part of [Duel, Lobby, Waiting]) {
    const { html, errors, opened } = await serverPage(
      h('main', null, h(Suspense, { fallback: 'waiting' }, h(part))),
    )
    expect(html).toContain('<main>')
    expect(html).toContain('waiting')
    expect(html).not.toContain('<b>')
    expect(errors).toMatchObject([{ digest: 'BAILOUT_TO_CLIENT_SIDE_RENDERING' }])
    expect(opened).toEqual({ tokens: 0, sockets: 0 })
  }
})

it('A server sends the fallback of the provider if there is no nearer one', async () => {
  const { html, opened } = await serverPage(h(Duel))
  expect(html).toContain('joining')
  expect(opened).toEqual({ tokens: 0, sockets: 0 })
})

it('A server renders the connection as connecting', async () => {
  const { html, errors, opened } = await serverPage(h(Status))
  expect(html).toContain('<i>connecting</i>')
  expect([errors, opened]).toEqual([[], { tokens: 0, sockets: 0 }])
})
