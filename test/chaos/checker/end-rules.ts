import { isDeepStrictEqual } from 'node:util'
import type { History } from './history.ts'
import type { Violation } from './violation.ts'

/** When everything has come to rest, every room has one owner, and every member and the store have what the owner has. */
export function checkEnd({ end, rooms }: History): Violation[] {
  const found: Violation[] = []
  const { at } = end
  const durability = new Map(rooms.map(({ room, durability }) => [room, durability]))
  for (const { room, message } of end.unreadable) found.push({ name: 'record_unreadable', at, room, message })
  for (const { room } of rooms) {
    const owners = end.owners.filter((owner) => owner.room === room)
    if (owners.length > 1)
      found.push({
        name: 'two_owners',
        at,
        room,
        message: `${owners.map(({ node }) => node).join(' and ')} run it`,
      })
    const owner = owners.toSorted((a, b) => b.epoch - a.epoch)[0]
    const members = end.members.filter((member) => member.room === room)
    if (!owner) {
      if (members.length > 0)
        found.push({ name: 'no_owner', at, room, message: `${members.length} members have no owner` })
      continue
    }
    for (const stand of members) {
      const { member, client } = stand
      // What a client library does not tell is not compared.
      const wrong = (['epoch', 'seq', 'checksum'] as const).filter(
        (field) => stand[field] !== undefined && stand[field] !== owner[field],
      )
      const same = isDeepStrictEqual(stand.state, owner.state)
      if (wrong.length === 0 && same) continue
      const differences = wrong.map((field) => `${field} is ${stand[field]}, the owner's ${owner[field]}`)
      if (!same) differences.push('the state is another')
      found.push({ name: 'final_mismatch', at, room, member, client, message: differences.join('; ') })
    }
    const record = end.records.find((candidate) => candidate.room === room)
    if (durability.get(room) === 'none' || !record) continue
    if (record.seq !== owner.seq || !isDeepStrictEqual(record.state, owner.state))
      found.push({
        name: 'record_differs',
        at,
        room,
        message: `the store restores seq ${record.seq}, the owner had ${owner.seq}`,
      })
  }
  return found
}
