import assert from 'node:assert/strict'
import { CLOSE, Topic } from '../case.ts'

const topic = new Topic('revocation')
export const revocation = topic.cases

const REVOKED = '§12 "4003: the key of the token was revoked", session ends'
const WITHIN =
  'contract §1 "every live session under the key is closed (4003) on every node within 1 s, and cannot resume"'

topic.each('a revoked key closes its sessions within a second, for good', WITHIN, async (stage, codec) => {
  const { project_id: projectId } = stage.target
  const key = stage.key()
  const keyId = await stage.control.createKey(projectId)
  const peer = await stage.connect(codec, { key_id: keyId, sub: 'anna' })
  const other = await stage.connect('json', { sub: 'ben' })
  const view = await peer.join('counter', key)
  await other.join('counter', key)
  await stage.control.revokeKey(projectId, keyId)
  await peer.closes(CLOSE.key_revoked, 1000)
  await other.expect('room.left', {
    room_id: view.roomId,
    member_id: view.memberId,
    reason: 'session_ended',
  })
  const back = await stage.askToResume(peer)
  await back.until('the resume is refused', () => back.ending !== undefined, 5000, 'even closed')
  // 4003 says that the session has ended; whether one that is gone is 4003 or 4009 the document leaves open.
  assert.ok(
    [CLOSE.key_revoked, CLOSE.resume_failed].includes(back.ending!.code as 4003),
    `${back.ending!.code}`,
  )
  assert.deepEqual(back.inbox, [])
})

topic.each(
  'a session whose connection was down cannot resume either',
  '§8 "4003, its key was revoked. (A revocation ends the sessions of the key, so that most often the answer is 4009.)"',
  async (stage, codec) => {
    const { project_id: projectId } = stage.target
    const keyId = await stage.control.createKey(projectId)
    const peer = await stage.connect(codec, { key_id: keyId })
    await peer.join('counter', stage.key())
    peer.cut()
    await stage.control.revokeKey(projectId, keyId)
    const back = await stage.askToResume(peer)
    const { code } = await back.ends()
    assert.ok(code === CLOSE.key_revoked || code === CLOSE.resume_failed, `closed with ${code}`)
    assert.deepEqual(back.inbox, [])
  },
)

topic.each('a token of a revoked key starts no session', REVOKED, async (stage, codec) => {
  const { project_id: projectId } = stage.target
  const keyId = await stage.control.createKey(projectId)
  const token = await stage.token({ key_id: keyId })
  await stage.greet(await stage.open(codec), token)
  await stage.control.revokeKey(projectId, keyId)
  const peer = await stage.open(codec)
  peer.send({ t: 'hello', project_id: projectId, token })
  await peer.closes(CLOSE.key_revoked)
})

topic.once('other keys of the project go on', REVOKED, async (stage) => {
  const { project_id: projectId } = stage.target
  const [doomed, kept] = [await stage.control.createKey(projectId), await stage.control.createKey(projectId)]
  const gone = await stage.connect('json', { key_id: doomed })
  const stays = await stage.connect('json', { key_id: kept })
  const builtin = await stage.connect('json')
  await stage.control.revokeKey(projectId, doomed)
  await gone.closes(CLOSE.key_revoked)
  await stays.roundTrip()
  await builtin.roundTrip()
})

topic.once(
  'a retiring key still works',
  'contract §1 "the old one is `retiring` for the grace, still works, then is revoked"',
  async (stage) => {
    const { project_id: projectId } = stage.target
    const keyId = await stage.control.createKey(projectId)
    const token = await stage.token({ key_id: keyId })
    const before = await stage.greet(await stage.open('json'), token)
    await stage.control.rotateKey(projectId, keyId, 3600)
    const after = await stage.greet(await stage.open('json'), token)
    await before.roundTrip()
    await after.roundTrip()
  },
)
