import { ledgerRoom } from '../cluster-room.ts'

export default ledgerRoom('snapshot')
